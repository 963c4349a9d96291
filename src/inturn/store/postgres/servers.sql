-- Named statements of servers; see servers.py.

-- name: queue_metrics
select q.name,
       (n.last - (q.number << $2::int) - d.removed_count
        - coalesce((select sum(t.removed_count) from inturn_recheck t where t.queue = q.number), 0))::bigint,
       h.in_flight, h.delayed, m.sent_ms, coalesce(b.blocked, 0), p.parked
from inturn_queue q
join inturn_numbering n on n.queue = q.number
join inturn_receiver d on d.queue = q.number
cross join lateral (
    select count(*) filter (where token is not null) in_flight, count(*) filter (where token is null) delayed
    from inturn_hold where queue = q.number and until_ms > $1
) h
left join lateral (
    select sent_ms from inturn_message
    where sequence_number >= greatest(d.messages_from, q.number << $2::int)
      and sequence_number <= ((q.number + 1) << $2::int) and status <> 1
    order by sequence_number limit 1
) m on true
-- Held messages are few, so the head of each of their groups is looked up.
left join lateral (
    select count(*) blocked
    from (
        select distinct grp from inturn_hold
        where queue = q.number and until_ms > $1 and grp is not null and not deferred
    ) g
    cross join lateral (
        select sequence_number from inturn_message
        where queue = q.number and grp = g.grp and status = 0 order by sequence_number limit 1
    ) first
    where exists (
        select 1 from inturn_hold
        where queue = q.number and grp = g.grp and grp is not null and not deferred and until_ms > $1
          and (sequence_number = first.sequence_number or token is not null)
    )
) b on h.in_flight + h.delayed > 0
cross join lateral (
    select count(*) parked from inturn_group_lock where queue = q.number and note is not null
) p
order by q.name collate "C";

-- name: save_written_ms
insert into inturn_meta (name, value) values ('written_ms', $1)
on conflict (name) do update set value = excluded.value;

-- name: pending_count
select coalesce(sum(n.last - (n.queue << $1::int) - d.removed_count), 0)::bigint
       - coalesce((select sum(removed_count) from inturn_recheck), 0)::bigint
from inturn_numbering n join inturn_receiver d on d.queue = n.queue;

-- name: server_values_version
select coalesce((select value from inturn_meta where name = 'server_values'), 0);

-- name: server_values
select name, value from inturn_server_value order by name;

-- name: server_values_to_change
select name, value from inturn_server_value order by name for update;

-- name: save_server_value
insert into inturn_server_value (name, value) values ($1, $2) on conflict (name) do update set value = excluded.value;

-- name: remove_server_value
delete from inturn_server_value where name = $1;

-- name: raise_server_values_version
insert into inturn_meta (name, value) values ('server_values', 1)
on conflict (name) do update set value = inturn_meta.value + 1;

-- name: matching_lease_count
select count(*) from jsonb_array_elements($1::jsonb) given (lease) join inturn_hold h
on h.sequence_number = (lease ->> 0)::bigint and h.token = (lease ->> 1)::bigint and h.until_ms = (lease ->> 5)::bigint
where h.queue + 0 = $2 and h.until_ms + 0 > $3; -- only the primary key serves, whatever the size of the table

-- name: remove_expired_attempts
delete from inturn_attempt where (queue, id) in (
    select queue, id from inturn_attempt where until_ms <= $1 order by until_ms limit $2 for update skip locked
);

-- name: save_attempt
insert into inturn_attempt (queue, id, until_ms, leases) values ($1, $2, $3, $4)
on conflict (queue, id) do update set until_ms = excluded.until_ms, leases = excluded.leases;

-- name: remove_expired_signatures
delete from inturn_signature where signature in (
    select signature from inturn_signature where until_s < $1 order by until_s limit $2 for update skip locked
);

-- name: add_signature
insert into inturn_signature (signature, until_s) values ($1, $2) on conflict do nothing returning 1;
