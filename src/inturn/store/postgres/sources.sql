-- Sources; see store/sql/sources.py.

-- name: source_names
select distinct source from inturn_source_partition order by source;

-- name: source_partitions
select name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note, lag,
    record_ms, is_finished, dropped, position_form, gone_ms
from inturn_source_partition where source = $1 order by name;

-- name: lock_source_partitions
select 1 from inturn_source_partition where source = $1 order by name for update;

-- name: lock_source
select pg_advisory_xact_lock(hashtextextended('inturn source ' || $1, 0));

-- name: source_unfinished
select name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note, lag,
    record_ms, is_finished, dropped, position_form, gone_ms
from inturn_source_partition where source = $1 and not is_finished order by name for update;

-- name: source_finished
select name, incarnation from inturn_source_partition where source = $1 and is_finished and gone_ms is null;

-- name: source_partition
select name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note, lag,
    record_ms, is_finished, dropped, position_form, gone_ms
from inturn_source_partition where source = $1 and name = $2 for update;

-- name: add_source_partition
insert into inturn_source_partition (source, name) values ($1, $2) on conflict do nothing;

-- name: save_source_partition
update inturn_source_partition
set position = $3, incarnation = $4, owner = $5, epoch = $6, until_ms = $7, is_paused = $8, received = $9,
    rejected = $10, moved_ms = $11, note = $12, lag = $13, record_ms = $14, is_finished = $15, dropped = $16,
    position_form = $17, gone_ms = $18
where source = $1 and name = $2;

-- name: renew_source_partitions
update inturn_source_partition set until_ms = $1 where source = $2 and owner = $3;

-- name: remove_source_partition
delete from inturn_source_partition where source = $1 and name = $2;

-- name: source_instances
select instance from inturn_source_instance where source = $1 order by instance;

-- name: save_source_instance
insert into inturn_source_instance (source, instance, until_ms, trouble) values ($1, $2, $3, $4)
on conflict (source, instance) do update set until_ms = excluded.until_ms, trouble = excluded.trouble;

-- name: source_troubles
select instance, trouble from inturn_source_instance
where source = $1 and until_ms > $2 and trouble <> '' order by instance;

-- name: remove_source_instance
delete from inturn_source_instance where source = $1 and instance = $2;

-- name: forget_source_instances
delete from inturn_source_instance where source = $1 and until_ms <= $2;

-- name: add_source_rejection
insert into inturn_source_rejection
    (source, name, position, reason, record_key, headers, body, exact, rejected_ms)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: source_rejections_by_number
select name, position, reason, record_key, headers, body, exact, number, rejected_ms
from inturn_source_rejection
where source = $1 and number in (select value::bigint from jsonb_array_elements_text($2::jsonb) as each (value))
order by number;

-- name: source_rejection_places
select number, name, size from inturn_source_rejection where source = $1 order by number;

-- name: source_rejection_total
select count(*), coalesce(sum(size), 0)::bigint from inturn_source_rejection where source = $1;

-- name: next_rejecting_source
select min(source) from inturn_source_rejection where source > $1;

-- name: lock_source_rejections
select number from inturn_source_rejection
where source = $1 and number in (select value::bigint from jsonb_array_elements_text($2::jsonb) as each (value))
order by number for update;

-- name: save_source_rejection_reason
update inturn_source_rejection set reason = $1 where number = $2;

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

-- name: add_source_moved
insert into inturn_source_moved (source, group_name, name, position, home, home_position, queue_name, draft, moved_ms)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: source_moved
select group_name, name, position, home, home_position, queue_name, draft, number, moved_ms
from inturn_source_moved where source = $1 and number > $2 order by number limit $3;

-- name: source_moved_of
select group_name, name, position, home, home_position, queue_name, draft, number, moved_ms
from inturn_source_moved where source = $1 and group_name = $2 order by number for update;

-- name: source_moved_groups
select distinct group_name from inturn_source_moved where source = $1 order by group_name;

-- name: source_moved_counts
select name, count(*) from inturn_source_moved where source = $1 group by name;

-- name: remove_source_moved
delete from inturn_source_moved
where number in (select value::bigint from jsonb_array_elements_text($1::jsonb) as each (value));

-- name: source_figures
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
