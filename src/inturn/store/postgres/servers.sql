-- Named statements of servers; see servers.py.

-- name: figures
select q.name,
       (n.last - (q.number << $2::int) - d.gone
        - coalesce((select sum(t.gone) from inturn_touched t where t.queue = q.number), 0))::bigint,
       h.in_flight, h.delayed, m.sent_ms, coalesce(b.blocked, 0), p.parked
from inturn_queue q
join inturn_numbering n on n.queue = q.number
join inturn_desk d on d.queue = q.number
cross join lateral (
    select count(*) filter (where token is not null) in_flight, count(*) filter (where token is null) delayed
    from inturn_hold where queue = q.number and until_ms > $1
) h
left join lateral (
    select sent_ms from inturn_message
    where sequence_number >= greatest(d.floor, q.number << $2::int)
      and sequence_number <= ((q.number + 1) << $2::int) and done <> 1
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
        where queue = q.number and grp = g.grp and done = 0 order by sequence_number limit 1
    ) first
    where exists (
        select 1 from inturn_hold
        where queue = q.number and grp = g.grp and grp is not null and not deferred and until_ms > $1
          and (sequence_number = first.sequence_number or token is not null)
    )
) b on h.in_flight + h.delayed > 0
cross join lateral (
    select count(*) parked from inturn_session where queue = q.number and note is not null
) p
order by q.name collate "C";

-- name: written
insert into inturn_meta (name, value) values ('written_ms', $1)
on conflict (name) do update set value = excluded.value;

-- name: pending
select coalesce(sum(n.last - (n.queue << $1::int) - d.gone), 0)::bigint
       - coalesce((select sum(gone) from inturn_touched), 0)::bigint
from inturn_numbering n join inturn_desk d on d.queue = n.queue;

-- name: facts_version
select coalesce((select value from inturn_meta where name = 'facts'), 0);

-- name: facts
select name, value from inturn_fact order by name;

-- name: facts_to_change
select name, value from inturn_fact order by name for update;

-- name: keep_fact
insert into inturn_fact (name, value) values ($1, $2) on conflict (name) do update set value = excluded.value;

-- name: forget_fact
delete from inturn_fact where name = $1;

-- name: change_facts
insert into inturn_meta (name, value) values ('facts', 1) on conflict (name) do update set value = inturn_meta.value + 1;

-- name: leased_so
select count(*) from jsonb_array_elements($1::jsonb) given (lease) join inturn_hold h
on h.sequence_number = (lease ->> 0)::bigint and h.token = (lease ->> 1)::bigint and h.until_ms = (lease ->> 5)::bigint
where h.queue + 0 = $2 and h.until_ms + 0 > $3; -- only the primary key serves, whatever the size of the table

-- name: forget_attempts
delete from inturn_attempt where (queue, id) in (
    select queue, id from inturn_attempt where until_ms <= $1 order by until_ms limit $2 for update skip locked
);

-- name: remember_attempt
insert into inturn_attempt (queue, id, until_ms, leases) values ($1, $2, $3, $4)
on conflict (queue, id) do update set until_ms = excluded.until_ms, leases = excluded.leases;

-- name: forget_signatures
delete from inturn_signature where signature in (
    select signature from inturn_signature where until_s < $1 order by until_s limit $2 for update skip locked
);

-- name: remember_signature
insert into inturn_signature (signature, until_s) values ($1, $2) on conflict do nothing returning 1;
