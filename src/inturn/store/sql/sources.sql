-- Sources: the statements that both databases have alike; see statements.py.

-- name: source_names
select distinct source from inturn_source_partition order by source;

-- name: source_partitions
select name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note, lag,
    record_ms, is_finished, dropped, position_form, removed_ms
from inturn_source_partition where source = $1 order by name;

-- name: source_finished
select name, incarnation from inturn_source_partition where source = $1 and is_finished and removed_ms is null;

-- name: add_source_partition
insert into inturn_source_partition (source, name) values ($1, $2) on conflict do nothing;

-- name: renew_source_partitions
update inturn_source_partition set until_ms = $1 where source = $2 and owner = $3;

-- name: remove_source_partition
delete from inturn_source_partition where source = $1 and name = $2;

-- name: source_instances
select instance from inturn_source_instance where source = $1 order by instance;

-- name: save_source_instance
insert into inturn_source_instance (source, instance, until_ms, error) values ($1, $2, $3, $4)
on conflict (source, instance) do update set until_ms = excluded.until_ms, error = excluded.error;

-- name: source_errors
select instance, error from inturn_source_instance
where source = $1 and until_ms > $2 and error <> '' order by instance;

-- name: remove_source_instance
delete from inturn_source_instance where source = $1 and instance = $2;

-- name: remove_expired_source_instances
delete from inturn_source_instance where source = $1 and until_ms <= $2;

-- name: add_source_rejection
insert into inturn_source_rejection
    (source, name, position, reason, record_key, headers, body, exact, rejected_ms)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: source_rejection_places
select number, name, size from inturn_source_rejection where source = $1 order by number;

-- name: next_rejecting_source
select min(source) from inturn_source_rejection where source > $1;

-- name: save_source_rejection_reason
update inturn_source_rejection set reason = $1 where number = $2;

-- name: add_source_moved
insert into inturn_source_moved (source, group_name, name, position, home, home_position, queue_name, draft, moved_ms)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: source_moved
select group_name, name, position, home, home_position, queue_name, draft, number, moved_ms
from inturn_source_moved where source = $1 and number > $2 order by number limit $3;

-- name: source_moved_groups
select distinct group_name from inturn_source_moved where source = $1 order by group_name;

-- name: source_moved_counts
select name, count(*) from inturn_source_moved where source = $1 group by name;

-- name: source_rejection_total
select count(*), cast(coalesce(sum(size), 0) as bigint) from inturn_source_rejection where source = $1;

-- name: erase_source_rejections
delete from inturn_source_rejection where record_key = $1;

-- name: erase_source_moved
delete from inturn_source_moved where group_name = $1;
