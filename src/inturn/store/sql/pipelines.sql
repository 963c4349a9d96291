-- Pipelines: the statements that both databases have alike; see statements.py.

-- name: erase_held
delete from inturn_held where pipeline = $1 and grp = $2;

-- name: erase_outputs
delete from inturn_output where pipeline = $1 and grp = $2;

-- name: erase_outbox
delete from inturn_outbox where pipeline = $1 and grp = $2;

-- name: group_decisions
select name, decision from inturn_decision where pipeline = $1 and grp = $2 order by name;

-- name: rewrite_decision
update inturn_decision set decision = $3 where pipeline = $1 and name = $2;

-- name: pipelines
select name from inturn_pipeline order by name;

-- name: group_records_after
select grp, version, status, timeline, state, held, oldest_us, due_us from inturn_group
where pipeline = $1 and grp > $2 order by grp limit $3;

-- name: parked_group_records
select grp, version, status, timeline, state, held, oldest_us, due_us from inturn_group
where pipeline = $1 and grp > $2 and status <> 'open' order by grp limit $3;

-- name: parked_group_summaries
select grp, status, timeline, held, oldest_us from inturn_group
where pipeline = $1 and grp > $2 and status <> 'open' order by grp limit $3;

-- name: due_groups
select grp, due_us from inturn_group where pipeline = $1 and due_us <= $2 order by due_us limit $3;

-- name: held_messages
select epoch, position, tie, id, since_us, digest, content from inturn_held
where pipeline = $1 and grp = $2 order by epoch, position, tie, id;

-- name: longest_held
select since_us, epoch, position, tie, id from inturn_held
where pipeline = $1 and grp = $2 order by since_us, epoch, position, tie, id limit $3;

-- name: rejections
select number, grp, reason, detail, message, at_ms from inturn_rejected
where pipeline = $1 and number > $2 order by number limit $3;

-- name: latest_group_rejections
select grp, reason, detail, message, at_ms from (
    select number, grp, reason, detail, message, at_ms from inturn_rejected
    where pipeline = $1 order by number desc limit $3
) latest where grp = $2 order by number desc limit $4;

-- name: outputs
select number, grp, epoch, revision, id, output_index, effect_id, output, trace from inturn_output
where pipeline = $1 and number > $2 order by number limit $3;

-- name: latest_group_outputs
select number, grp, epoch, revision, id, output_index, effect_id, output, trace from inturn_output
where pipeline = $1 and grp = $2 order by number desc limit $3;

-- name: has_undelivered
select 1 from inturn_output o where pipeline = $1 and not exists (
    select 1 from inturn_outbox b where b.pipeline = $1 and b.grp = o.grp and b.until_ms >= $2
) limit 1;

-- name: new_decisions
select name, grp, decision, verdict from inturn_decision
where pipeline = $1 and verdict is null order by name limit $2;

-- name: new_group_decisions
select name, grp, decision, verdict from inturn_decision
where pipeline = $1 and verdict is null and grp = $2 order by name limit $3;

-- name: latest_group_decisions
select name, grp, decision, verdict from (
    select name, grp, decision, verdict from inturn_decision where pipeline = $1 order by name desc limit $3
) latest where grp = $2 order by name desc limit $4;

-- name: summary
select count(*), count(*) filter (where status = 'waiting'), count(*) filter (where status not in ('open', 'waiting')),
    cast(coalesce(sum(held), 0) as bigint), (select count(*) from inturn_output where pipeline = $1)
from inturn_group where pipeline = $1;
