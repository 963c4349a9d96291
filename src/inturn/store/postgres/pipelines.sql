-- Statements of pipelines; see pipelines.py. Changes are made in sets, whatever their size. A statement may be planned
-- while the tables are empty, when a scan of a pipeline looks as cheap as a look-up of a group: `any(array(…))`,
-- `offset 0` and `pipeline + 0` force the look-up.

-- name: pipeline
select p.number, p.about, t.kind, t.reason, t.count from inturn_pipeline p
left join lateral (
    select kind, reason, sum(count)::bigint as count from inturn_pipeline_count
    where pipeline = p.number group by kind, reason
) t on true
where p.name = $1;

-- name: add_pipeline
insert into inturn_pipeline (name, about) values ($1, $2) on conflict do nothing returning number;

-- name: save_pipeline
update inturn_pipeline set about = $2 where number = $1;

-- name: add_pipeline_counts
insert into inturn_pipeline_count (pipeline, slot, kind, reason, count)
select $1, pg_backend_pid() % 16, t.kind, t.reason, t.count
from unnest($2::text[], $3::text[], $4::bigint[]) t (kind, reason, count) order by t.kind, t.reason
on conflict (pipeline, slot, kind, reason) do update set count = inturn_pipeline_count.count + excluded.count;

-- name: group_records
select grp, version, status, timeline, state, held, oldest_us, due_us from inturn_group
where pipeline = $1 and grp = any($2::text[]);

-- It locks the groups in the same order as `keep`.
-- name: set_due
with waiting as materialized (
    select ctid from inturn_group where pipeline = $1 and status <> 'open' and status = 'waiting' order by grp for update
)
update inturn_group set due_us = oldest_us + $2::bigint where ctid = any(array(select ctid from waiting));

-- It locks the groups in the same order as `keep`.
-- name: postpone_due
with due as materialized (
    select ctid from inturn_group where pipeline = $1 and grp = any($2::text[]) and due_us <= $3 order by grp for update
)
update inturn_group set due_us = $4 where ctid = any(array(select ctid from due));

-- It locks the groups, which `keep` writes next.
-- name: group_versions
select grp, version from inturn_group where pipeline = $1 and grp = any($2::text[]) order by grp for update;

-- name: add_group_records
insert into inturn_group (pipeline, grp, version, status, timeline, state, held, oldest_us, due_us)
select $1, * from unnest($2::text[], $3::bigint[], $4::text[], $5::bytea[], $6::bytea[], $7::bigint[], $8::bigint[],
    $9::bigint[]) l (grp, version, status, timeline, state, held, oldest_us, due_us) order by l.grp
on conflict do nothing returning grp;

-- name: save_group_records
insert into inturn_group (pipeline, grp, version, status, timeline, state, held, oldest_us, due_us)
select $1, * from unnest($2::text[], $3::bigint[], $4::text[], $5::bytea[], $6::bytea[], $7::bigint[], $8::bigint[],
    $9::bigint[])
on conflict (pipeline, grp) do update
set version = excluded.version, status = excluded.status, timeline = excluded.timeline, state = excluded.state,
    held = excluded.held, oldest_us = excluded.oldest_us, due_us = excluded.due_us;

-- name: begun_tasks
select grp, begun_tasks, begun_until_ms from inturn_group
where pipeline = $1 and grp = any($2::text[]) and begun_tasks > 0;

-- name: begin_tasks
update inturn_group g set begun_tasks = b.begun, begun_until_ms = b.until_ms
from unnest($2::text[], $3::bigint[], $4::bigint[]) b (grp, begun, until_ms)
where g.pipeline = $1 and g.grp = b.grp and g.grp = any(array(
    select grp from inturn_group where pipeline = $1 and grp = any($2::text[]) order by grp for update
));

-- It does not wait for other workers; it returns the groups that they hold.
-- name: begin_free_tasks
with free as materialized (
    select grp from inturn_group where pipeline = $1 and grp = any($2::text[]) order by grp for update skip locked
), begun as (
    update inturn_group g set begun_tasks = b.begun, begun_until_ms = b.until_ms
    from unnest($2::text[], $3::bigint[], $4::bigint[]) b (grp, begun, until_ms)
    where g.pipeline = $1 and g.grp = b.grp and g.grp = any(array(select grp from free))
)
select grp from inturn_group where pipeline = $1 and grp = any($2::text[]) and grp not in (select grp from free);

-- name: held_at_positions
select epoch, position, tie, id, since_us, digest, content from inturn_held
where pipeline = $1 and grp = $2 and position = any($3::bigint[]);

-- name: held_with_ids
select epoch, position, tie, id, since_us, digest, content from inturn_held
where pipeline = $1 and grp = $2 and id = any($3::text[]) and id <> '';

-- name: add_held
insert into inturn_held (pipeline, grp, epoch, position, tie, id, since_us, digest, content)
select $1, * from unnest(
    $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bytea[], $9::text[])
on conflict (pipeline, grp, epoch, position, tie, id) do update
set since_us = excluded.since_us, digest = excluded.digest, content = excluded.content;

-- name: remove_held
delete from inturn_held where ctid = any(array(
    select h.at from unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[])
         g (grp, epoch, position, tie, id)
    cross join lateral (
        select ctid as at from inturn_held
        where pipeline = $1 and grp = g.grp and epoch = g.epoch and position = g.position
              and tie = g.tie and id = g.id offset 0
    ) h
));

-- name: held_from
select epoch, position, tie, id, since_us, digest, content from inturn_held
where pipeline = $1 and grp = $2 and (epoch, position, tie, id) >= ($3::bigint, $4::bigint, $5::text, $6::text)
order by epoch, position, tie, id limit $7;

-- name: held_heads
select g.grp, h.epoch, h.position, h.tie, h.id, h.since_us, h.digest, h.content from unnest($2::text[]) g (grp)
cross join lateral (
    select * from inturn_held h where h.pipeline = $1 and h.grp = g.grp
    order by h.epoch, h.position, h.tie, h.id limit 1
) h;

-- name: marks
select m.mark, m.digest, m.position from unnest($3::bytea[]) asked (mark)
cross join lateral (
    select mark, digest, position from inturn_mark where pipeline = $1 and grp = $2 and mark = asked.mark offset 0
) m order by m.mark;

-- name: add_marks
insert into inturn_mark (pipeline, grp, mark, digest, position)
select $1, * from unnest($2::text[], $3::bytea[], $4::bytea[], $5::bigint[]) m (grp, mark, digest, position)
order by m.grp, m.mark; -- so that transactions do not deadlock

-- name: add_rejected
insert into inturn_rejected (pipeline, grp, reason, detail, message, at_ms)
select $1, * from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[]);

-- name: add_outputs
insert into inturn_output (pipeline, grp, epoch, revision, id, output_index, effect_id, output, trace, created_ms)
select $1, o.grp, o.epoch, o.revision, o.id, o.output_index, o.effect_id, o.output, o.trace, o.created_ms
from unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::bigint[])
     with ordinality o (grp, epoch, revision, id, output_index, effect_id, output, trace, created_ms, place)
order by o.place;

-- name: add_to_outbox
insert into inturn_outbox_note (pipeline, grp, created_ms) select $1, * from unnest($2::text[], $3::bigint[]);

-- name: apply_outbox_notes
with notes as materialized (
    select number, grp, created_ms from inturn_outbox_note
    where pipeline = $1 order by number limit $2 for update skip locked
), existing as materialized (
    select grp from inturn_outbox where pipeline = $1 and grp = any(array(select grp from notes))
), locked as materialized (
    select grp from inturn_outbox where pipeline = $1 and grp = any(array(select grp from notes)) for update skip locked
), added as (
    insert into inturn_outbox (pipeline, grp, until_ms, token, attempts)
    select $1, n.grp, min(n.created_ms), 0, 0 from notes n
    where n.grp not in (select grp from existing)
          and exists (select from inturn_output o where o.pipeline = $1 and o.grp = n.grp offset 0)
    group by n.grp order by n.grp
    on conflict do nothing
)
delete from inturn_outbox_note
where pipeline = $1 and number = any(array(
    select number from notes where grp not in (select grp from existing) or grp in (select grp from locked)
));

-- name: claim
with suspect as materialized (
    select grp, until_ms, true as is_alone from inturn_outbox
    where pipeline + 0 = $1 and until_ms <= $2 and (token <> 0 or lapses > 1)
    order by until_ms, grp limit 1 for update skip locked
), unclaimed as materialized (
    select grp, until_ms, false as is_alone from inturn_outbox
    where pipeline + 0 = $1 and until_ms <= $2 and token = 0 and lapses <= 1 and not exists (select from suspect)
    order by until_ms limit $3 for update skip locked
), free as materialized (
    select * from suspect union all select * from unclaimed
), claimed as (
    update inturn_outbox b
    set token = nextval('inturn_claim_token'), until_ms = $5, lapses = lapses + case when token <> 0 then 1 else 0 end,
        lapsed_to = case when token = 0 or lapses > 0 then lapsed_to else coalesce((
            select max(number) from (
                select number from inturn_output o where o.pipeline = $1 and o.grp = b.grp order by number limit $4
            ) in_hand
        ), 0) end
    where pipeline = $1 and grp = any(array(select grp from free)) returning grp, token, attempts, lapses
)
select c.grp, c.token, c.attempts, c.lapses, f.is_alone, o.number, o.grp, o.epoch, o.revision, o.id,
       o.output_index, o.effect_id, o.output, o.trace
from claimed c
join free f on f.grp = c.grp
left join lateral (
    select * from inturn_output o where o.pipeline = $1 and o.grp = c.grp
    order by o.number limit case when c.lapses > 0 then 1 else $4 end
) o on true
order by f.until_ms, c.grp, o.number;

-- name: renew_claims
update inturn_outbox b set until_ms = c.until_ms from unnest($2::text[], $3::bigint[], $4::bigint[]) c (grp, token, until_ms)
where b.pipeline = $1 and b.grp = any($2::text[]) and b.grp = c.grp and b.token = c.token;

-- name: end_delivery
with locked as (
    update inturn_outbox
    set token = 0, until_ms = $4, error = $6,
        attempts = case when $6::text is null then 0 when $5::bigint > 0 then 1 else attempts + 1 end,
        lapses = case when $6::text is null and $5::bigint = 0 then lapses
            when $5::bigint > 0 and lapsed_to <= (select max(number) from unnest($7::bigint[]) number) then 0
            else least(lapses, 1) end
    where pipeline = $1 and grp = $2 and token = $3 returning grp
), removed as (
    delete from inturn_output where pipeline = $1 and number = any($7::bigint[]) and exists (select from locked)
)
select grp from locked;

-- name: remove_from_outbox
delete from inturn_outbox b
where b.pipeline = $1 and b.grp = any($2::text[])
      and not exists (select from inturn_output o where o.pipeline = $1 and o.grp = b.grp offset 0);

-- name: group_deliveries
select g.grp, coalesce(b.until_ms, p.created_ms, 0), coalesce(b.attempts, 0), b.error, o.depth
from unnest($2::text[]) g (grp)
cross join lateral (
    select count(*) as depth from inturn_output o where o.pipeline = $1 and o.grp = g.grp
) o
left join lateral (
    select * from inturn_outbox b where b.pipeline = $1 and b.grp = g.grp offset 0
) b on true
left join lateral (
    select min(created_ms) as created_ms from inturn_outbox_note where pipeline + 0 = $1 and grp = g.grp
) p on true
where o.depth > 0 order by g.grp limit $3;

-- name: failing_deliveries
select b.grp, b.until_ms, b.attempts, b.error, o.depth from inturn_outbox b
cross join lateral (
    select count(*) as depth from inturn_output o where o.pipeline = $1 and o.grp = b.grp
) o
where b.pipeline = $1 and b.grp > $2 and b.attempts > 0 order by b.grp limit $3;

-- name: redeliver
update inturn_outbox set until_ms = 0 where pipeline = $1 and until_ms >= $2 and grp = any($3::text[]) returning 1;

-- name: redeliver_all
update inturn_outbox set until_ms = 0 where pipeline + 0 = $1 and until_ms >= $2 returning 1;

-- name: add_decisions
insert into inturn_decision (pipeline, name, grp, decision)
select $1, * from unnest($2::text[], $3::text[], $4::text[]);

-- name: set_verdicts
update inturn_decision d set verdict = v.verdict from unnest($2::text[], $3::text[]) v (name, verdict)
where d.pipeline = $1 and d.name = v.name and d.verdict is null;

-- name: verdicts
select name, verdict from inturn_decision where pipeline = $1 and name = any($2::text[]) and verdict is not null;

-- name: decision_groups
select name, grp from inturn_decision where pipeline = $1 and name = any($2::text[]);
