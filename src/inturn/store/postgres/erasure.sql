-- The erasure of a group; see store/sql/erasure.py.

-- name: erase_held
delete from inturn_held where pipeline = $1 and grp = $2;

-- name: erase_outputs
delete from inturn_output where pipeline = $1 and grp = $2;

-- name: erase_outbox
delete from inturn_outbox where pipeline = $1 and grp = $2;

-- name: erase_rejected
delete from inturn_rejected where pipeline = $1 and md5(grp) = md5($2::text) and grp = $2;

-- name: group_decisions
select name, decision from inturn_decision where pipeline = $1 and grp = $2 order by name;

-- name: rewrite_decision
update inturn_decision set decision = $3 where pipeline = $1 and name = $2;

-- name: erase_session
with noted as (
    update inturn_session set note = 'forgotten' where queue = $1 and grp = $2 and note is not null
)
delete from inturn_state where queue = $1 and grp = $2;

-- name: erase_source_rejections
delete from inturn_source_rejection where record_key = $1;

-- name: erase_source_moved
delete from inturn_source_moved where group_name = $1;
