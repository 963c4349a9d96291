-- Named statements of queues; receiver_lock.py describes the locks. Each reads only the rows that it returns, whatever
-- the size of the queue, except `groups`, which only users call.
--
-- A statement may be planned while a table is empty, and the plan must suit a full table. So a look-up for each row is a
-- subquery with `offset 0`, `limit` or `for update`, which the planner does not move; keys that were found are an array;
-- and `coalesce` or `+ 0` around the condition of a partial index keeps the planner from that index where it is not
-- wanted. (`until_ms + 0 > 5` would not: it implies that until_ms is not null.) The messages and the holds of a group
-- have indexes by `sequence_number + 0`: with sequence_number itself, the server might scan those of all groups.
--
-- A long-running transaction keeps dead tuples, and index scans visit them. So scans start at a lower bound, and rows
-- that change often carry a version column, so that the live tuple is the last one in the index.

-- Statements include parts as {name}.

-- part: message
m.sequence_number, m.body, m.content, m.grp, m.revision, m.dedup_id, m.attributes,
m.sent_ms, m.origin, m.came_from, m.note

-- part: hold
h.until_ms, h.token, h.attempts, h.since_ms, h.first_ms, h.deferred, h.lapsed

-- part: hold_of_message
left join lateral (select * from inturn_hold where sequence_number = m.sequence_number offset 0) h on true

-- part: is_head
h.grp is null or h.deferred or not exists (
    select from inturn_message e
    where e.queue = $1 and e.grp = h.grp and e.status = 0
          and e.sequence_number + 0 >= $2 and e.sequence_number + 0 < h.sequence_number offset 0
)

-- part: numbering_row
update inturn_numbering set last = last + $2
where queue = $1 and last >= (select max(last) from inturn_numbering where queue = $1)

-- part: numbering
{numbering_row}
returning last - $2 as before

-- part: add_messages
insert into inturn_message
    (sequence_number, queue, body, content, grp, revision, dedup_id, attributes, sent_ms)
select n.before + m.place, $1, m.body, m.content, m.grp, m.revision, m.dedup_id, m.attributes, $3
from numbering n, unnest($4::bytea[], $5::smallint[], $6::text[], $7::bigint[], $8::text[], $9::text[])
     with ordinality m (body, content, grp, revision, dedup_id, attributes, place)

-- part: messages_of_heads
{message}, {hold}
from heads r
left join lateral (
    (select * from inturn_message where r.grp is null and sequence_number = r.sequence_number and status + 0 = 0)
    union all
    (select * from inturn_message
     where queue = $1 and grp = r.grp and status = 0 and sequence_number + 0 >= r.sequence_number
     order by sequence_number + 0 limit $5)
) m on true
{hold_of_message}
limit $6

-- part: unlisted_heads
chunk as materialized (
    select m.sequence_number, m.grp, m.status from inturn_message m
    where m.sequence_number > (select listed_to from inturn_receiver where queue = $1 and version = $5)
          and m.sequence_number <= $2
    order by m.sequence_number limit $3
), unlisted_heads as (
    select min(sequence_number) as sequence_number, grp from chunk where status = 0 and grp is not null group by grp
    union all
    select sequence_number, null from chunk where status = 0 and grp is null
)

-- part: are_free
not exists (
        select from inturn_message e
        where e.queue = $1 and e.grp = f.grp and e.status = 0
              and e.sequence_number + 0 >= $4 and e.sequence_number + 0 < f.sequence_number offset 0
    ) and not exists (
        select from inturn_group_lock s where s.queue = $1 and s.grp = f.grp offset 0
    ) and not exists (
        select from inturn_hold h where h.sequence_number = f.sequence_number and coalesce(h.until_ms, -1) >= 0 offset 0
    ) and not exists (
        select from inturn_hold h
        where h.queue = $1 and h.grp = f.grp and h.sequence_number + 0 >= f.sequence_number and not h.deferred
              and h.token is not null offset 0
    )

-- part: rechecked_heads
found as materialized (
    select t.nth, t.grp, m.sequence_number, h.is_back,
           case when not h.is_back then null
                when t.place is null then (
                     select last from inturn_numbering where queue = $1 order by last desc limit 1
                 )
                else t.place end as place
    from unnest($2::text[], $3::bigint[], $4::bigint[]) with ordinality t (grp, number, place, nth)
    cross join lateral (
        (select m.sequence_number from inturn_message m
         where t.grp is null and m.sequence_number = t.number and m.status + 0 = 0)
        union all
        (select m.sequence_number from inturn_message m
         where m.queue = $1 and m.grp = t.grp and m.status = 0 and m.sequence_number + 0 >= $5
         order by m.sequence_number + 0 limit 1)
    ) m
    cross join lateral (
        select coalesce(bool_or(h.until_ms is not null and (h.sequence_number = m.sequence_number
                                                            or h.token is not null)), false),
               coalesce(bool_or(h.sequence_number = m.sequence_number and h.attempts > 0), false)
        from (
            (select * from inturn_hold where t.grp is null and sequence_number = t.number offset 0)
            union all
            (select * from inturn_hold
             where queue = $1 and grp = t.grp and sequence_number + 0 >= m.sequence_number and not deferred offset 0)
        ) h
    ) h (is_held, is_back)
    where not h.is_held
    and not exists (
        select from inturn_group_lock s where s.queue = $1 and s.grp = t.grp offset 0
    ) and not (h.is_back and exists (
        select from inturn_ready r where r.sequence_number = m.sequence_number offset 0
    ))
), numbered as (
    select f.sequence_number, f.grp, d.listed_to,
           d.last_requeue_rank + 2 * count(*) filter (where f.is_back) over w as rank,
           greatest(d.last_requeue_place, max(f.place) over w) as behind, f.is_back
    from found f cross join inturn_receiver d where d.queue = $1 and d.version = $6
    window w as (order by f.nth rows unbounded preceding)
)

-- part: acknowledged
held as materialized (
    select h.sequence_number, h.grp from unnest($2::bigint[], $3::bigint[]) c (number, token)
    cross join lateral (
        select h.sequence_number, h.grp from inturn_hold h
        where h.sequence_number = c.number and h.token = c.token and coalesce(h.until_ms, 0) > $4 for update
    ) h
), removed_holds as (
    delete from inturn_hold where sequence_number = any(array(select sequence_number from held))
), rechecks as (
    insert into inturn_recheck (queue, grp, removed_count) select $1, grp, count(*) from held group by grp
)

-- part: group_lock_row
select token, until_ms, since_ms, note, parked_ms from inturn_group_lock where queue = $1 and grp = $2

-- name: now
select (extract(epoch from clock_timestamp()) * 1000)::bigint, value from inturn_meta where name = 'catalog';

-- name: readable_from
select coalesce((select value from inturn_meta where name = 'readable_from'), 0);

-- name: queues
select number, name, settings, readers, created_ms from inturn_queue;

-- name: queue_counts
select n.last, n.last - ($1::bigint << $2::int) - d.removed_count
       - coalesce((select sum(t.removed_count) from inturn_recheck t where t.queue = $1), 0)::bigint, d.last_token
from (select last from inturn_numbering where queue = $1 order by last desc limit 1) n,
     (select queue, removed_count, last_token from inturn_receiver where queue = $1 order by version desc limit 1) d;

-- name: change_catalog
update inturn_meta set value = value + 1 where name = 'catalog' returning value;

-- name: next_queue_number
update inturn_meta set value = value + 1 where name = 'queues' returning value;

-- name: add_queue
insert into inturn_queue (number, name, settings, readers, created_ms) values ($1, $2, $3, $4, $5);

-- name: add_numbering
insert into inturn_numbering (queue, last) values ($1, $2);

-- name: add_receiver
insert into inturn_receiver (queue, last_token, removed_count, listed_to, messages_from, ready_from, is_list_complete)
values ($1, 0, 0, $2::bigint, $2::bigint, $2::bigint, false);

-- name: save_queue
update inturn_queue set settings = $2, readers = $3 where number = $1;

-- name: remove_numbering
delete from inturn_numbering where queue = $1;

-- name: remove_receiver
delete from inturn_receiver where queue = $1;

-- name: lock_numbering
select last from inturn_numbering where queue = $1 order by last desc limit 1 for update;

-- name: try_numbering
select 1 from inturn_numbering where queue = $1 order by last desc limit 1 for update skip locked;

-- name: lock_receiver
select 1 from inturn_receiver where queue = $1 order by version desc limit 1 for update;

-- name: purge_messages
with purged as (delete from inturn_message where sequence_number > $2 and sequence_number <= $3 returning status)
update inturn_receiver set removed_count = removed_count + (select count(*) from purged where status <> 1)
where queue = $1;

-- name: purge_ready
delete from inturn_ready where sequence_number > $1 and sequence_number <= $2;

-- name: purge_holds
delete from inturn_hold where sequence_number > $1 and sequence_number <= $2;

-- name: remove_rechecks
delete from inturn_recheck where queue = $1;

-- name: remove_read_messages
delete from inturn_message where sequence_number = any(array(
    select sequence_number from inturn_message
    where status = 1 and sequence_number > $1 and sequence_number <= $2 order by sequence_number limit $3
));

-- name: send
with numbering as (
    {numbering}
), added as (
    {add_messages}
)
select before from numbering;

-- name: send_with_given_revisions
-- The same as send, unless a producer assigns a revision in a group that the queue numbers: rule 5 of
-- core/queue/numbering.py.
with numbering as (
    {numbering_row} and not exists (
        select from unnest($6::text[], $7::bigint[]) m (grp, revision) cross join lateral (
            select from inturn_revision where queue = $1 and grp = m.grp and m.revision is not null offset 0
        ) r
    )
    returning last - $2 as before
), added as (
    {add_messages}
)
select before from numbering;

-- name: send_with_next_revisions
-- The same as send, with the revisions of rules 1 and 2 of core/queue/numbering.py. The numbering row is locked before
-- the row of a group, which is derived from it.
with numbering as (
    {numbering}
), given as materialized (
    select m.*, count(*) filter (where m.is_next) over (partition by m.grp order by m.place) as nth
    from unnest($4::bytea[], $5::smallint[], $6::text[], $7::boolean[], $8::text[])
         with ordinality m (body, content, grp, is_next, attributes, place)
), counted as materialized (
    select grp, max(nth) as number from given where is_next group by grp
), revised as (
    insert into inturn_revision (queue, grp, last)
    select $1, c.grp, c.number from numbering n cross join counted c
    on conflict (queue, grp) do update set last = inturn_revision.last + excluded.last
    returning grp, last
), added as (
    insert into inturn_message (sequence_number, queue, body, content, grp, revision, attributes, sent_ms)
    select n.before + m.place, $1, m.body, m.content, m.grp,
           case when m.is_next then r.last - c.number + m.nth end, m.attributes, $3
    from numbering n cross join given m
    left join counted c on c.grp = m.grp
    left join revised r on r.grp = m.grp
)
select n.before, r.grp, r.last from numbering n left join revised r on true;

-- name: find_dedup
select n.last, d.place, d.sequence_number, d.until_ms, d.revision
from (select last from inturn_numbering where queue = $1 order by last desc limit 1) n left join lateral (
    select w.place, k.sequence_number, k.until_ms, k.revision
    from unnest($2::text[], $3::text[]) with ordinality w (scope, id, place)
    cross join lateral (
        select k.sequence_number, k.until_ms, k.revision from inturn_dedup k
        where k.queue = $1 and k.scope = w.scope and k.id = w.id offset 0
    ) k
) d on true;

-- name: save_dedup
insert into inturn_dedup (queue, scope, id, sequence_number, until_ms, revision)
select $1, * from unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
on conflict (queue, scope, id) do update
set sequence_number = excluded.sequence_number, until_ms = excluded.until_ms, revision = excluded.revision;

-- name: remove_expired_dedup
with outdated as materialized (
    select queue, scope, id, until_ms from inturn_dedup
    where until_ms >= $1 and until_ms <= $2 order by until_ms limit $3 for update skip locked
), forgotten as (
    delete from inturn_dedup where ctid = any(array(
        select d.ctid from outdated o cross join lateral (
            select d.ctid from inturn_dedup d where d.queue = o.queue and d.scope = o.scope and d.id = o.id offset 0
        ) d
    ))
)
select max(until_ms) from outdated;

-- name: add_delays
insert into inturn_hold (sequence_number, queue, grp, until_ms, attempts, since_ms, deferred)
select d.number, $1, d.grp, d.until_ms, 0, $2, false
from unnest($3::bigint[], $4::text[], $5::bigint[]) d (number, grp, until_ms);

-- name: add_rechecks
insert into inturn_recheck (queue, grp, sequence_number, removed_count, due_ms)
select $1, * from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]);

-- name: add_returned_rechecks
insert into inturn_recheck (queue, grp, sequence_number, removed_count, due_ms, returned_ms, place)
select $1, t.grp, t.number, t.removed_count, t.due_ms, t.returned_ms,
       case when t.returned_ms is not null then (
           select last from inturn_numbering where queue = $1 order by last desc limit 1
       ) end
from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) with ordinality
     t (grp, number, removed_count, due_ms, returned_ms, nth)
order by t.nth;

-- name: take_rechecks
with receiver as materialized (
    select * from inturn_receiver where queue = $1 order by version desc limit 1
), rechecks as (
    delete from inturn_recheck where ctid = any(array(
        select t.ctid from inturn_recheck t
        where t.queue = $1 and t.xid >= (select case when $3 then coalesce(seen_xid, 0) else 0 end from receiver)
        union all
        select t.ctid from unnest((select seen_except from receiver where $3)) excepted (xid) cross join lateral (
            select t.ctid from inturn_recheck t where t.queue = $1 and t.xid = excepted.xid offset 0
        ) t
    )) returning grp, sequence_number, removed_count, due_ms, id, returned_ms, place
)
select d.version, d.last_token, d.removed_count, d.listed_to, d.messages_from, d.ready_from, d.is_list_complete,
       d.due_ms,
       d.last_requeue_rank > 0,
       coalesce(d.ready_after_rank > d.last_requeue_rank and d.ready_after_number = 9223372036854775807, false),
       pg_current_snapshot()::text, pg_current_xact_id()::text::bigint,
       f.sequence_number, f.sent_ms, t.grp, t.sequence_number, t.removed_count, t.due_ms, t.id, t.returned_ms, t.place
from receiver d
left join lateral (
    select m.sequence_number, m.sent_ms from inturn_message m
    where m.sequence_number >= d.messages_from and m.sequence_number <= $2 order by m.sequence_number limit 1
) f on true
left join rechecks t on true;

-- name: has_work
select exists (select from inturn_recheck t where t.queue = $1 and t.xid >= coalesce(d.seen_xid, 0))
       or exists (
           select from unnest(d.seen_except) excepted (xid) cross join lateral (
               select from inturn_recheck t where t.queue = $1 and t.xid = excepted.xid limit 1
           ) t
       ) or exists (
           select from inturn_ready r where r.sequence_number >= d.ready_from and r.sequence_number <= $2
       ) or exists (
           select from inturn_ready r
           where (r.place, r.rank, r.sequence_number) > (d.ready_after_place, d.ready_after_rank, d.ready_after_number)
                 and r.place <= $2
       ) or exists (
           select from inturn_message m where m.sequence_number > d.listed_to and m.sequence_number <= $2
       ) or coalesce(d.due_ms <= $3, false) or coalesce((
           select m.sent_ms from inturn_message m
           where m.sequence_number >= d.messages_from and m.sequence_number <= $2 order by m.sequence_number limit 1
       ) <= $4, false)
from (select * from inturn_receiver where queue = $1 order by version desc limit 1) d;

-- name: save_receiver
update inturn_receiver
set last_token = $2, removed_count = $3, messages_from = $4, ready_from = coalesce($5::bigint, ready_from),
    is_list_complete = $6, due_ms = $7,
    seen_xid = $8, seen_except = $9, version = version + 1,
    ready_after_place = case when $14 then greatest(ready_after_place, last_requeue_place)
        else coalesce($11::bigint, ready_after_place) end,
    ready_after_rank = case when $14 then last_requeue_rank + 1 else coalesce($12::bigint, ready_after_rank) end,
    ready_after_number = case when $14 then 9223372036854775807 else coalesce($13::bigint, ready_after_number) end
where queue = $1 and version = $10;

-- name: list_ready
with {unlisted_heads}, added as (
    insert into inturn_ready (sequence_number, grp)
    select f.sequence_number, f.grp from unlisted_heads f where {are_free}
    on conflict do nothing
)
update inturn_receiver set listed_to = (select max(sequence_number) from chunk)
where queue = $1 and version = $5 and exists (select from chunk) returning listed_to, (select count(*) from chunk);

-- name: list_ready_by_priority
-- The same as list_ready, with the places of `moved_forward` in core/queue/ready_groups.py.
with {unlisted_heads}, added as (
    insert into inturn_ready (sequence_number, grp, place, rank)
    select f.sequence_number, f.grp, case when p.lead <> 0 then greatest(f.sequence_number - p.lead, $6::bigint + 1) end,
           case when p.lead <> 0 then 1 else 0 end
    from unlisted_heads f
    left join lateral (
        select priority * $7::bigint as lead from inturn_priority where queue = $1 and grp = f.grp offset 0
    ) p on true
    where {are_free}
    on conflict do nothing
)
update inturn_receiver
set listed_to = (select max(sequence_number) from chunk),
    ready_after_place = $6, ready_after_rank = 0, ready_after_number = 0
where queue = $1 and version = $5 and exists (select from chunk) returning listed_to, (select count(*) from chunk);

-- name: refresh_unplaced
-- Until a message of the queue is returned for the first time, each place is a sequence number.
with added as (
    insert into inturn_ready (sequence_number, grp)
    select m.sequence_number, t.grp
    from unnest($2::text[]) t (grp)
    cross join lateral (
        select m.sequence_number from inturn_message m
        where m.queue = $1 and m.grp = t.grp and m.status = 0 and m.sequence_number + 0 >= $3
        order by m.sequence_number + 0 limit 1
    ) m
    where m.sequence_number <= (select listed_to from inturn_receiver where queue = $1 and version = $4)
    and not exists (
        select from inturn_group_lock s where s.queue = $1 and s.grp = t.grp offset 0
    ) and not exists (
        select from inturn_hold h
        where h.queue = $1 and h.grp = t.grp and h.sequence_number + 0 >= m.sequence_number and not h.deferred
              and coalesce(h.until_ms, -1) >= 0
              and (h.sequence_number = m.sequence_number or h.token is not null) offset 0
    )
    on conflict do nothing returning sequence_number
)
update inturn_receiver set ready_from = least(ready_from, (select min(sequence_number) from added))
where queue = $1 and version = $4 and exists (select from added);

-- name: refresh_unplaced_ungrouped
with added as (
    insert into inturn_ready (sequence_number)
    select m.sequence_number from inturn_message m
    where m.sequence_number = any($2::bigint[]) and m.status + 0 = 0
    and m.sequence_number <= (select listed_to from inturn_receiver where queue = $1 and version = $3)
    and not exists (
        select from inturn_hold h where h.sequence_number = m.sequence_number and coalesce(h.until_ms, -1) >= 0 offset 0
    )
    on conflict do nothing returning sequence_number
)
update inturn_receiver set ready_from = least(ready_from, (select min(sequence_number) from added))
where queue = $1 and version = $3 and exists (select from added);

-- name: refresh
-- The rules are those of `place_of_joining` in core/queue/ready_groups.py: `behind` and `rank` are `back` for each head.
with {rechecked_heads}, placed as (
    select sequence_number, grp, listed_to, behind, rank as last_requeue_rank,
           case when is_back or sequence_number <= behind then behind end as place,
           case when is_back then rank when sequence_number <= behind then rank + 1 else 0 end as rank
    from numbered
), added as (
    insert into inturn_ready (sequence_number, grp, place, rank)
    select sequence_number, grp, place, rank from placed where place is not null or sequence_number <= listed_to
    on conflict do nothing returning sequence_number, place, rank
)
update inturn_receiver
set ready_from = least(ready_from, (select min(sequence_number) from added where place is null)),
    last_requeue_place = greatest(last_requeue_place, (select max(behind) from placed)),
    last_requeue_rank = greatest(last_requeue_rank, (select max(last_requeue_rank) from placed)),
    ready_after_number = least(ready_after_number, (
        select min(a.sequence_number) - 1 from added a where a.place = ready_after_place and a.rank = ready_after_rank
    ))
where queue = $1 and version = $6 and exists (select from added);

-- name: refresh_by_priority
-- The same as refresh, with the places of `moved_forward` in core/queue/ready_groups.py. Such a group may get a place
-- that a receiver has already passed, so the ready queue is read from its beginning.
with {rechecked_heads}, placed as (
    select n.sequence_number, n.grp, n.listed_to, n.behind, n.rank as last_requeue_rank,
           case when n.is_back then n.behind
                when p.lead <> 0 then greatest(greatest(n.sequence_number, n.behind) - p.lead, $7::bigint + 1)
                when n.sequence_number <= n.behind then n.behind end as place,
           case when n.is_back then n.rank
                when n.sequence_number <= n.behind then n.rank + 1
                when p.lead <> 0 then 1 else 0 end as rank
    from numbered n
    left join lateral (
        select priority * $8::bigint as lead from inturn_priority where queue = $1 and grp = n.grp offset 0
    ) p on true
), added as (
    insert into inturn_ready (sequence_number, grp, place, rank)
    select sequence_number, grp, place, rank from placed where place is not null or sequence_number <= listed_to
    on conflict do nothing returning sequence_number, place, rank
)
update inturn_receiver
set ready_from = least(ready_from, (select min(sequence_number) from added where place is null)),
    last_requeue_place = greatest(last_requeue_place, (select max(behind) from placed)),
    last_requeue_rank = greatest(last_requeue_rank, (select max(last_requeue_rank) from placed)),
    ready_after_place = $7, ready_after_rank = 0, ready_after_number = 0
where queue = $1 and version = $6 and exists (select from added);

-- name: remove_ready_head
delete from inturn_ready where sequence_number = (
    select m.sequence_number from inturn_message m
    where m.queue = $1 and m.grp = $2 and m.status = 0 and m.sequence_number + 0 >= $3
    order by m.sequence_number + 0 limit 1
) and not exists (
    select from inturn_hold h where h.sequence_number = inturn_ready.sequence_number and h.attempts > 0 offset 0
)
returning sequence_number;

-- name: remove_ready
delete from inturn_ready where sequence_number = any($1::bigint[]);

-- name: next_heads_unplaced
with heads as materialized (
    select r.sequence_number, r.grp from inturn_ready r
    where r.sequence_number >= greatest($2, (select ready_from from inturn_receiver where queue = $1 and version = $7))
          and r.sequence_number <= $3
    order by r.sequence_number limit $4
)
select r.sequence_number, 0::bigint, r.sequence_number, r.grp,
       {messages_of_heads};

-- name: mark_first_requeue
update inturn_receiver set last_requeue_rank = 2, ready_after_place = $3, ready_after_rank = 0, ready_after_number = 0
where queue = $1 and version = $2 and last_requeue_rank = 0;

-- name: next_heads
with heads as materialized (
    select * from (
        (select r.sequence_number, r.grp, r.sequence_number as place, 0::bigint as rank from inturn_ready r
         where r.sequence_number >= greatest($2, (select ready_from from inturn_receiver where queue = $1 and version = $7))
               and r.sequence_number <= $3 and r.place is null
         order by r.sequence_number limit $4)
        union all
        (select r.sequence_number, r.grp, r.place, r.rank from inturn_ready r
         where (r.place, r.rank, r.sequence_number) > (
                   coalesce($8, (select ready_after_place from inturn_receiver where queue = $1 and version = $7)),
                   coalesce($9, (select ready_after_rank from inturn_receiver where queue = $1 and version = $7)),
                   coalesce($10, (select ready_after_number from inturn_receiver where queue = $1 and version = $7))
               )
               and r.place <= $3
         order by r.place, r.rank, r.sequence_number limit $4)
    ) r order by place, rank, sequence_number limit $4
)
select r.place, r.rank, r.sequence_number, r.grp,
       {messages_of_heads};

-- name: next_of_group
select {message}, {hold}
from inturn_message m
{hold_of_message}
where m.queue = $1 and m.grp = $2 and m.status = 0 and m.sequence_number + 0 >= $3
and not exists (select from inturn_group_lock s where s.queue = $1 and s.grp = $2)
and not exists (
    select from inturn_hold b
    where b.queue = $1 and b.grp = $2 and b.sequence_number + 0 >= $3 and not b.deferred and b.token is not null
)
order by m.sequence_number + 0 limit $4;

-- name: add_holds
insert into inturn_hold
    (sequence_number, queue, grp, until_ms, token, attempts, since_ms, first_ms, deferred)
select l.number, $1, l.grp, l.until_ms, l.token, 1, $2::bigint, $2::bigint, false
from unnest($3::bigint[], $4::text[], $5::bigint[], $6::bigint[]) l (number, grp, until_ms, token);

-- name: set_holds
insert into inturn_hold
    (sequence_number, queue, grp, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed)
select l.number, $1, l.grp, l.until_ms, l.token, l.attempts, l.since_ms, l.first_ms, l.deferred, l.lapsed
from unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
            $9::boolean[], $10::boolean[])
     l (number, grp, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed)
on conflict (sequence_number) do update
set until_ms = excluded.until_ms, token = excluded.token, attempts = excluded.attempts,
    since_ms = excluded.since_ms, first_ms = excluded.first_ms, deferred = excluded.deferred, lapsed = excluded.lapsed;

-- name: remove_holds
delete from inturn_hold where sequence_number = any($1::bigint[]);

-- name: expired_holds
select h.sequence_number, h.grp, {hold},
       {is_head}
from inturn_hold h where h.queue = $1 and h.until_ms >= $5 and h.until_ms <= $3
order by h.until_ms limit $4 for update of h skip locked;

-- name: next_due
select least(
    (select until_ms from inturn_hold where queue = $1 and until_ms >= $2 order by until_ms limit 1),
    (select until_ms from inturn_group_lock where queue = $1 and until_ms >= $2 order by until_ms limit 1)
);

-- name: spans_begun_after
select 0 as kind, queue, sequence_number, null::text as grp, since_ms, until_ms from inturn_hold
where until_ms is not null and since_ms > $1
union all
select 1, queue, null, grp, since_ms, until_ms from inturn_group_lock where until_ms is not null and since_ms > $1
order by until_ms limit $2;

-- name: end_holds_at
with found as materialized (
    select sequence_number, since_ms, until_ms from inturn_hold
    where sequence_number = any($3::bigint[]) for update skip locked
), moved as (
    update inturn_hold h set until_ms = e.until_ms, since_ms = e.since_ms
    from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
         e (until_ms, since_ms, number, since, until)
    join found f on f.sequence_number = e.number and f.since_ms = e.since and f.until_ms = e.until
    where h.sequence_number = any(array(select sequence_number from found)) and h.sequence_number = e.number
    returning h.queue, h.until_ms
)
insert into inturn_recheck (queue, due_ms) select queue, min(until_ms) from moved group by queue;

-- name: end_group_lock_at
with ended as (
    update inturn_group_lock set until_ms = $1, since_ms = $2
    where queue = $3 and grp = $4 and since_ms = $5 and coalesce(until_ms, -1) = $6 returning queue
)
insert into inturn_recheck (queue, due_ms) select queue, $1 from ended;

-- Rule 9 of core/queue/delivery.py.
-- name: remove_expired_messages
with old as (
    select m.sequence_number, m.sent_ms from inturn_message m
    where m.sequence_number >= $1 and m.sequence_number <= $2 order by m.sequence_number limit $3
), outdated as (
    select sequence_number from (
        select sequence_number, max(sent_ms) over (order by sequence_number) as latest from old
    ) o where latest <= $4
), taken as (
    select m.sequence_number from inturn_message m
    where m.sequence_number = any(array(select sequence_number from outdated)) for update skip locked
), removed as (
    delete from inturn_message where sequence_number = any(array(select sequence_number from taken))
    returning sequence_number, grp, status
), removed_holds as (
    delete from inturn_hold where sequence_number = any(array(select sequence_number from removed))
), removed_ready as (
    delete from inturn_ready where sequence_number = any(array(select sequence_number from removed))
)
select sequence_number, grp, status from removed;

-- name: acknowledge
with {acknowledged}, removed as (
    delete from inturn_message where sequence_number = any(array(select sequence_number from held))
)
select sequence_number from held;

-- name: acknowledge_for_readers
with {acknowledged}, removed as (
    delete from inturn_message
    where sequence_number = any(array(select sequence_number from held where sequence_number <= $5))
), kept as (
    update inturn_message set status = 1
    where sequence_number = any(array(select sequence_number from held where sequence_number > $5))
)
select sequence_number from held;

-- name: existing_messages
select sequence_number from inturn_message where sequence_number = any($1::bigint[]) and status <> 1;

-- name: lock_holds
select 1 from unnest($1::bigint[], $2::bigint[]) c (number, token)
cross join lateral (
    select 1 from inturn_hold h
    where h.sequence_number = c.number and (c.token is null or h.token = c.token) for update
) h;

-- name: messages_to_settle
select m.sequence_number, m.grp, m.status, m.origin,
       {hold}
from inturn_message m
{hold_of_message}
where m.sequence_number = any($1::bigint[]);

-- name: earlier_messages
select c.sequence_number, array(
    select e.sequence_number from inturn_message e
    where e.queue = c.queue and e.grp = c.grp and e.status = 0 and e.sequence_number + 0 < c.sequence_number
          and e.sequence_number + 0 >= (
              select messages_from from inturn_receiver d where d.queue = c.queue order by d.version desc limit 1
          )
    order by e.sequence_number + 0 limit $2
)
from inturn_message c where c.sequence_number = any($1::bigint[]) and c.grp is not null;

-- name: remove_messages
delete from inturn_message where sequence_number = any($1::bigint[]);

-- name: set_status
update inturn_message set status = $2 where sequence_number = any($1::bigint[]);

-- These three restate `moved` of core/queue/delivery.py: to another queue, back to the old place, within the queue.
-- name: move
with numbering as (
    {numbering}
)
insert into inturn_message
    (sequence_number, queue, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note)
select n.before + c.place, $1, m.body, m.content, m.grp, m.revision, m.dedup_id, m.attributes, $3,
       coalesce(m.origin, m.sequence_number), $4, c.note
from numbering n, unnest($5::bigint[], $6::text[]) with ordinality c (number, note, place)
cross join lateral (select * from inturn_message where sequence_number = c.number offset 0) m;

-- name: move_back
with moved as (
    insert into inturn_message
        (sequence_number, queue, body, content, grp, revision, dedup_id, attributes, sent_ms, came_from, note)
    select m.origin, $1, m.body, m.content, m.grp, m.revision, m.dedup_id, m.attributes, $2, $3, c.note
    from unnest($4::bigint[], $5::text[]) c (number, note)
    cross join lateral (select * from inturn_message where sequence_number = c.number offset 0) m
    on conflict (sequence_number) do update
    set body = excluded.body, content = excluded.content, grp = excluded.grp, revision = excluded.revision,
        dedup_id = excluded.dedup_id, attributes = excluded.attributes, sent_ms = excluded.sent_ms, origin = null,
        came_from = excluded.came_from, note = excluded.note, status = 0
    returning sequence_number, grp
), rechecks as (
    insert into inturn_recheck (queue, grp, sequence_number)
    select $1, grp, case when grp is null then sequence_number end
    from moved
)
update inturn_receiver
set removed_count = removed_count - (select count(*) from moved),
    messages_from = least(messages_from, (select min(sequence_number) from moved))
where queue = $1 and version >= (select max(version) from inturn_receiver where queue = $1);

-- name: move_within
update inturn_message
set sent_ms = $1, came_from = coalesce(came_from, $2), status = 0,
    note = ($4::text[])[array_position($3::bigint[], sequence_number)]
where sequence_number = any($3::bigint[]);

-- name: remove_ready_successors
delete from inturn_ready where sequence_number = any(array(
    select (
        select e.sequence_number from inturn_message e
        where e.queue = $1 and e.grp = c.grp and e.status = 0 and e.sequence_number + 0 > c.number
        order by e.sequence_number + 0 limit 1
    ) from unnest($2::bigint[], $3::text[]) c (number, grp)
));

-- name: first_of_group
select sequence_number from inturn_message
where queue = $1 and grp = $2 and status = 0 and sequence_number + 0 >= $3 order by sequence_number + 0 limit 1;

-- name: one_message
select {message}, {hold}
from inturn_message m
{hold_of_message}
where m.sequence_number = $1 and m.status <> 1;

-- name: group_holds
select h.sequence_number, {hold} from inturn_hold h where queue = $1 and grp = $2 and not deferred;

-- name: fetched_holds
select h.sequence_number, {hold} from inturn_hold h where queue = $1 and grp = $2 and deferred and token is not null;

-- name: extend_session_holds
update inturn_hold set until_ms = $4, since_ms = $5
where sequence_number = any(array(
    select sequence_number from inturn_hold
    where queue = $1 and grp = $2 and not deferred and token = $3 for update skip locked
) || array(
    select sequence_number from inturn_hold
    where queue = $1 and grp = $2 and deferred and token = $3 for update skip locked
));

-- name: lock_holds_to_end
select h.sequence_number, h.grp, {hold},
       {is_head}
from inturn_hold h where h.sequence_number = any($3::bigint[]) for update of h skip locked;

-- name: group_lock
{group_lock_row};

-- name: group_lock_to_renew
{group_lock_row} for no key update;

-- name: group_lock_to_share
{group_lock_row} for key share;

-- name: group_lock_to_take
{group_lock_row} for update skip locked;

-- name: set_group_lock
insert into inturn_group_lock (queue, grp, token, until_ms, since_ms, note, parked_ms)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (queue, grp) do update
set token = excluded.token, until_ms = excluded.until_ms, since_ms = excluded.since_ms,
    note = excluded.note, parked_ms = excluded.parked_ms;

-- name: remove_group_lock
delete from inturn_group_lock where queue = $1 and grp = $2;

-- name: expired_group_locks
select grp, token, until_ms, since_ms, note, parked_ms from inturn_group_lock
where queue = $1 and until_ms >= $4 and until_ms <= $2 order by until_ms limit $3 for update skip locked;

-- name: next_ready_group
select * from (
    (select r.sequence_number as place, 0::bigint as rank, r.sequence_number, r.grp from inturn_ready r
     where r.sequence_number >= greatest(
               coalesce($3, 0) + 1, (select ready_from from inturn_receiver where queue = $1 and version = $7)
           )
           and r.sequence_number <= $2 and r.grp is not null and r.place is null
     order by r.sequence_number limit $6)
    union all
    (select r.place, r.rank, r.sequence_number, r.grp from inturn_ready r
     where (r.place, r.rank, r.sequence_number) > (
               coalesce($3, (select ready_after_place from inturn_receiver where queue = $1 and version = $7)),
               coalesce($4, (select ready_after_rank from inturn_receiver where queue = $1 and version = $7)),
               coalesce($5, (select ready_after_number from inturn_receiver where queue = $1 and version = $7))
           )
           and r.place <= $2 and r.grp is not null
     order by r.place, r.rank, r.sequence_number limit $6)
) r order by place, rank, sequence_number limit $6;

-- name: session_messages
select {message}, {hold}
from inturn_message m
{hold_of_message}
where m.queue = $1 and m.grp = $2 and m.status = 0 and m.sequence_number + 0 >= $3 and h.token is distinct from $4
order by m.sequence_number + 0 limit $5;

-- name: session_state
select state from inturn_session_state where queue = $1 and grp = $2;

-- name: set_session_state
insert into inturn_session_state (queue, grp, state) values ($1, $2, $3)
on conflict (queue, grp) do update set state = excluded.state;

-- name: remove_session_state
delete from inturn_session_state where queue = $1 and grp = $2;

-- name: remove_session_states
delete from inturn_session_state where queue = $1;

-- name: hidden
select count(*) filter (where token is not null), count(*) filter (where token is null)
from inturn_hold where queue = $1 and until_ms > $2;

-- name: read
select {message} from inturn_message m where sequence_number > $1 and sequence_number <= $2 order by sequence_number limit $3;

-- name: read_pending
select {message} from inturn_message m where sequence_number > $1 and sequence_number <= $2 and status <> 1
order by sequence_number limit $3;

-- name: read_deferred
select {message} from inturn_message m where queue = $1 and sequence_number > $2 and status = 2
order by sequence_number limit $3;

-- name: read_group
(select {message} from inturn_message m where queue = $1 and grp = $2 and sequence_number + 0 > $3 and status = 0
 order by sequence_number + 0 limit $4)
union all
(select {message} from inturn_message m where queue = $1 and grp = $2 and sequence_number > $3 and status = 2
 order by sequence_number limit $4)
order by sequence_number limit $4;

-- name: read_group_deferred
select {message} from inturn_message m where queue = $1 and grp = $2 and sequence_number > $3 and status = 2
order by sequence_number limit $4;

-- name: groups
select grp, count(*), min(sequence_number) from inturn_message
where queue = $1 and status = 0 and grp is not null group by grp order by min(sequence_number) limit $2;

-- name: group
select count(*), min(sequence_number) from inturn_message where queue = $1 and grp = $2 and status = 0;

-- name: ungrouped
select sequence_number from inturn_message
where queue = $1 and grp is null and status = 0 order by sequence_number limit $2;

-- name: notify_channel
select 'inturn_' || ('inturn_meta'::regclass::oid)::text;

-- Not the tables' own identity, which a copy by `createdb -T` or of the server's files shares.
-- name: database_identity
select concat_ws('/', (select oid from pg_database where datname = current_database()),
                 coalesce(to_regclass('inturn_meta')::oid, 0), extract(epoch from pg_postmaster_start_time()));

-- name: transaction_id
select pg_current_xact_id()::text;

-- name: transaction_status
select pg_xact_status($1::text::xid8);

-- The scope of transaction numbers: the server's files, their timeline, which a failover or a restore changes, and the
-- start of the server. After a crash all processes of the server are new, and numbers may be assigned again.
-- name: server_run
select concat_ws('/', (pg_control_system()).system_identifier, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
                 extract(epoch from pg_postmaster_start_time())),
       (select string_agg(concat_ws('@', pid, backend_start), ' ') from pg_stat_activity
        where datid is null and usesysid is null);

-- The tables' own identity, which copies share: two numbers of 64 bits.
-- name: lineage
select value from inturn_meta where name in ('lineage_high', 'lineage_low') order by name;

-- name: notify
select pg_notify($1, $2);
