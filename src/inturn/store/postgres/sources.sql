-- Sources; see store/sql/sources.py.

-- name: source_names
select distinct source from inturn_source_partition order by source;

-- name: source_partitions
select name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note
from inturn_source_partition where source = $1 order by name for update;

-- name: source_partition
select name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note
from inturn_source_partition where source = $1 and name = $2 for update;

-- name: add_source_partition
insert into inturn_source_partition (source, name) values ($1, $2) on conflict do nothing;

-- name: save_source_partition
update inturn_source_partition
set position = $3, incarnation = $4, owner = $5, epoch = $6, until_ms = $7, is_paused = $8, received = $9,
    rejected = $10, moved_ms = $11, note = $12
where source = $1 and name = $2;

-- name: remove_source_partition
delete from inturn_source_partition where source = $1 and name = $2;

-- name: source_instances
select instance from inturn_source_instance where source = $1 order by instance;

-- name: save_source_instance
insert into inturn_source_instance (source, instance, until_ms) values ($1, $2, $3)
on conflict (source, instance) do update set until_ms = excluded.until_ms;

-- name: remove_source_instance
delete from inturn_source_instance where source = $1 and instance = $2;

-- name: forget_source_instances
delete from inturn_source_instance where source = $1 and until_ms <= $2;

-- name: add_source_rejection
insert into inturn_source_rejection (source, name, position, reason, record_key, headers, body, rejected_ms)
values ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: source_rejections
select name, position, reason, record_key, headers, body, number, rejected_ms
from inturn_source_rejection where source = $1 and number > $2 order by number limit $3;

-- name: source_ids
select id, digest from inturn_source_id
where source = $1 and id in (select value from jsonb_array_elements_text($2::jsonb) as each (value));

-- name: add_source_ids
insert into inturn_source_id (source, id, digest)
select $1, value ->> 0, value ->> 1 from jsonb_array_elements($2::jsonb) as each (value);
