-- Sources; see store/sql/sources.py.

-- name: lock_source_partitions
select 1 from inturn_source_partition where source = $1 order by name for update;

-- name: lock_source
select pg_advisory_xact_lock(hashtextextended('inturn source ' || $1, 0));

-- name: source_unfinished
select name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note, lag,
    record_ms, is_finished, dropped, position_form, removed_ms
from inturn_source_partition where source = $1 and not is_finished order by name for update;

-- name: source_partition
select name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note, lag,
    record_ms, is_finished, dropped, position_form, removed_ms
from inturn_source_partition where source = $1 and name = $2 for update;

-- name: save_source_partition
update inturn_source_partition
set position = $3, incarnation = $4, owner = $5, epoch = $6, until_ms = $7, is_paused = $8, received = $9,
    rejected = $10, moved_ms = $11, note = $12, lag = $13, record_ms = $14, is_finished = $15, dropped = $16,
    position_form = $17, removed_ms = $18
where source = $1 and name = $2;

-- name: source_rejections_by_number
select name, position, reason, record_key, headers, body, exact, number, rejected_ms
from inturn_source_rejection
where source = $1 and number in (select value::bigint from jsonb_array_elements_text($2::jsonb) as each (value))
order by number;

-- name: lock_source_rejections
select number from inturn_source_rejection
where source = $1 and number in (select value::bigint from jsonb_array_elements_text($2::jsonb) as each (value))
order by number for update;

-- name: remove_source_rejections
delete from inturn_source_rejection
where source = $1 and number in (select value::bigint from jsonb_array_elements_text($2::jsonb) as each (value))
returning 1;

-- name: source_ids
select id, digest from inturn_source_id
where source = $1 and id in (select value from jsonb_array_elements_text($2::jsonb) as each (value));

-- name: add_source_ids
insert into inturn_source_id (source, id, digest)
select $1, value ->> 0, value ->> 1 from jsonb_array_elements($2::jsonb) as each (value);

-- name: add_source_groups
insert into inturn_source_group (source, group_name, name, position)
select $1, value ->> 0, $2, value ->> 1 from jsonb_array_elements($3::jsonb) as each (value)
on conflict do nothing;

-- name: save_source_groups
insert into inturn_source_group (source, group_name, name, position)
select $1, value ->> 0, $2, value ->> 1 from jsonb_array_elements($3::jsonb) as each (value)
on conflict (source, group_name) do update set name = excluded.name, position = excluded.position;

-- name: source_groups
select group_name, name, position from inturn_source_group
where source = $1 and group_name in (select value from jsonb_array_elements_text($2::jsonb) as each (value));

-- name: source_moved_of_group
select group_name, name, position, home, home_position, queue_name, draft, number, moved_ms
from inturn_source_moved where source = $1 and group_name = $2 order by number for update;

-- name: remove_source_moved
delete from inturn_source_moved
where number in (select value::bigint from jsonb_array_elements_text($1::jsonb) as each (value));

-- name: source_metrics
select source, shown, count(*) filter (where status = 'read'), count(*) filter (where status = 'unread'),
    count(*) filter (where status = 'finished'), count(*) filter (where status = 'paused'),
    count(*) filter (where status = 'refused'), sum(received)::bigint, sum(rejected)::bigint, sum(dropped)::bigint,
    sum(moved)::bigint, sum(lag)::bigint,
    min(oldest_ms), max(moved_ms)
from (
    select p.source, case when count(*) over (partition by p.source) > $2 then '*' else p.name end as shown,
        case when p.note is not null then 'refused' when p.is_paused then 'paused' when p.is_finished then 'finished'
            when p.owner is not null and p.until_ms > $1 then 'read' else 'unread' end as status,
        p.received, p.rejected, p.dropped, p.lag, case when p.lag = 0 then null else p.record_ms end as oldest_ms, p.moved_ms,
        (select count(*) from inturn_source_moved m where m.source = p.source and m.name = p.name) as moved
    from inturn_source_partition p
) as each_partition
group by source, shown order by source, shown;
