-- The erasure of a group; see store/sql/erasure.py.

-- name: erase_rejected
delete from inturn_rejected where pipeline = $1 and md5(grp) = md5($2::text) and grp = $2;

-- name: erase_session_state
with updated as (
    update inturn_group_lock set note = 'forgotten' where queue = $1 and grp = $2 and note is not null
)
delete from inturn_session_state where queue = $1 and grp = $2;
