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
    where e.queue = $1 and e.grp = h.grp and e.done = 0
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
    (select * from inturn_message where r.grp is null and sequence_number = r.sequence_number and done + 0 = 0)
    union all
    (select * from inturn_message
     where queue = $1 and grp = r.grp and done = 0 and sequence_number + 0 >= r.sequence_number
     order by sequence_number + 0 limit $5)
) m on true
{hold_of_message}
limit $6

-- part: firsts
chunk as materialized (
    select m.sequence_number, m.grp, m.done from inturn_message m
    where m.sequence_number > (select listed from inturn_desk where queue = $1 and version = $5)
          and m.sequence_number <= $2
    order by m.sequence_number limit $3
), firsts as (
    select min(sequence_number) as sequence_number, grp from chunk where done = 0 and grp is not null group by grp
    union all
    select sequence_number, null from chunk where done = 0 and grp is null
)

-- part: are_free
not exists (
        select from inturn_message e
        where e.queue = $1 and e.grp = f.grp and e.done = 0
              and e.sequence_number + 0 >= $4 and e.sequence_number + 0 < f.sequence_number offset 0
    ) and not exists (
        select from inturn_session s where s.queue = $1 and s.grp = f.grp offset 0
    ) and not exists (
        select from inturn_hold h where h.sequence_number = f.sequence_number and coalesce(h.until_ms, -1) >= 0 offset 0
    ) and not exists (
        select from inturn_hold h
        where h.queue = $1 and h.grp = f.grp and h.sequence_number + 0 >= f.sequence_number and not h.deferred
              and h.token is not null offset 0
    )

-- part: ready_again
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
         where t.grp is null and m.sequence_number = t.number and m.done + 0 = 0)
        union all
        (select m.sequence_number from inturn_message m
         where m.queue = $1 and m.grp = t.grp and m.done = 0 and m.sequence_number + 0 >= $5
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
        select from inturn_session s where s.queue = $1 and s.grp = t.grp offset 0
    ) and not (h.is_back and exists (
        select from inturn_ready r where r.sequence_number = m.sequence_number offset 0
    ))
), numbered as (
    select f.sequence_number, f.grp, d.listed, d.back_turn + 2 * count(*) filter (where f.is_back) over w as turn,
           greatest(d.back_place, max(f.place) over w) as behind, f.is_back
    from found f cross join inturn_desk d where d.queue = $1 and d.version = $6
    window w as (order by f.nth rows unbounded preceding)
)

-- part: acknowledged
held as materialized (
    select h.sequence_number, h.grp from unnest($2::bigint[], $3::bigint[]) c (number, token)
    cross join lateral (
        select h.sequence_number, h.grp from inturn_hold h
        where h.sequence_number = c.number and h.token = c.token and coalesce(h.until_ms, 0) > $4 for update
    ) h
), unheld as (
    delete from inturn_hold where sequence_number = any(array(select sequence_number from held))
), touched as (
    insert into inturn_touched (queue, grp, gone) select $1, grp, count(*) from held group by grp
)

-- part: group_lock_row
select token, until_ms, since_ms, note, parked_ms from inturn_session where queue = $1 and grp = $2

-- name: now
select (extract(epoch from clock_timestamp()) * 1000)::bigint, value from inturn_meta where name = 'catalog';

-- name: readable_from
select coalesce((select value from inturn_meta where name = 'readable_from'), 0);

-- name: queues
select number, name, settings, readers, created_ms from inturn_queue;

-- name: counts
select n.last, n.last - ($1::bigint << $2::int) - d.gone
       - coalesce((select sum(t.gone) from inturn_touched t where t.queue = $1), 0)::bigint, d.tokens
from (select last from inturn_numbering where queue = $1 order by last desc limit 1) n,
     (select queue, gone, tokens from inturn_desk where queue = $1 order by version desc limit 1) d;

-- name: change_catalog
update inturn_meta set value = value + 1 where name = 'catalog' returning value;

-- name: make_number
update inturn_meta set value = value + 1 where name = 'queues' returning value;

-- name: add_queue
insert into inturn_queue (number, name, settings, readers, created_ms) values ($1, $2, $3, $4, $5);

-- name: add_numbering
insert into inturn_numbering (queue, last) values ($1, $2);

-- name: add_desk
insert into inturn_desk (queue, tokens, gone, listed, floor, ready_from, ran_out)
values ($1, 0, 0, $2::bigint, $2::bigint, $2::bigint, false);

-- name: save_queue
update inturn_queue set settings = $2, readers = $3 where number = $1;

-- name: remove_numbering
delete from inturn_numbering where queue = $1;

-- name: remove_desk
delete from inturn_desk where queue = $1;

-- name: lock_numbering
select last from inturn_numbering where queue = $1 order by last desc limit 1 for update;

-- name: try_numbering
select 1 from inturn_numbering where queue = $1 order by last desc limit 1 for update skip locked;

-- name: lock_desk
select 1 from inturn_desk where queue = $1 order by version desc limit 1 for update;

-- name: purge_messages
with purged as (delete from inturn_message where sequence_number > $2 and sequence_number <= $3 returning done)
update inturn_desk set gone = gone + (select count(*) from purged where done <> 1) where queue = $1;

-- name: purge_ready
delete from inturn_ready where sequence_number > $1 and sequence_number <= $2;

-- name: purge_holds
delete from inturn_hold where sequence_number > $1 and sequence_number <= $2;

-- name: remove_touched
delete from inturn_touched where queue = $1;

-- name: forget_read
delete from inturn_message where sequence_number = any(array(
    select sequence_number from inturn_message
    where done = 1 and sequence_number > $1 and sequence_number <= $2 order by sequence_number limit $3
));

-- name: send
with numbering as (
    {numbering}
), added as (
    {add_messages}
)
select before from numbering;

-- name: send_given
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

-- name: send_next
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

-- name: known
select n.last, d.place, d.sequence_number, d.until_ms, d.revision
from (select last from inturn_numbering where queue = $1 order by last desc limit 1) n left join lateral (
    select w.place, k.sequence_number, k.until_ms, k.revision
    from unnest($2::text[], $3::text[]) with ordinality w (scope, id, place)
    cross join lateral (
        select k.sequence_number, k.until_ms, k.revision from inturn_dedup k
        where k.queue = $1 and k.scope = w.scope and k.id = w.id offset 0
    ) k
) d on true;

-- name: remember
insert into inturn_dedup (queue, scope, id, sequence_number, until_ms, revision)
select $1, * from unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
on conflict (queue, scope, id) do update
set sequence_number = excluded.sequence_number, until_ms = excluded.until_ms, revision = excluded.revision;

-- name: forget
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

-- name: delay
insert into inturn_hold (sequence_number, queue, grp, until_ms, attempts, since_ms, deferred)
select d.number, $1, d.grp, d.until_ms, 0, $2, false
from unnest($3::bigint[], $4::text[], $5::bigint[]) d (number, grp, until_ms);

-- name: touch
insert into inturn_touched (queue, grp, number, gone, due_ms)
select $1, * from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]);

-- name: touch_back
insert into inturn_touched (queue, grp, number, gone, due_ms, at_ms, place)
select $1, t.grp, t.number, t.gone, t.due_ms, t.at_ms,
       case when t.at_ms is not null then (
           select last from inturn_numbering where queue = $1 order by last desc limit 1
       ) end
from unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) with ordinality
     t (grp, number, gone, due_ms, at_ms, nth)
order by t.nth;

-- name: draw
with desk as materialized (
    select * from inturn_desk where queue = $1 order by version desc limit 1
), drawn as (
    delete from inturn_touched where ctid = any(array(
        select t.ctid from inturn_touched t
        where t.queue = $1 and t.xact >= (select case when $3 then coalesce(drawn_to, 0) else 0 end from desk)
        union all
        select t.ctid from unnest((select drawn_but from desk where $3)) late (xact) cross join lateral (
            select t.ctid from inturn_touched t where t.queue = $1 and t.xact = late.xact offset 0
        ) t
    )) returning grp, number, gone, due_ms, noted, at_ms, place
)
select d.version, d.tokens, d.gone, d.listed, d.floor, d.ready_from, d.ran_out, d.due_ms,
       d.back_turn > 0, coalesce(d.line_turn > d.back_turn and d.line_number = 9223372036854775807, false),
       pg_current_snapshot()::text, pg_current_xact_id()::text::bigint,
       f.sequence_number, f.sent_ms, t.grp, t.number, t.gone, t.due_ms, t.noted, t.at_ms, t.place
from desk d
left join lateral (
    select m.sequence_number, m.sent_ms from inturn_message m
    where m.sequence_number >= d.floor and m.sequence_number <= $2 order by m.sequence_number limit 1
) f on true
left join drawn t on true;

-- name: is_anything
select exists (select from inturn_touched t where t.queue = $1 and t.xact >= coalesce(d.drawn_to, 0))
       or exists (
           select from unnest(d.drawn_but) late (xact) cross join lateral (
               select from inturn_touched t where t.queue = $1 and t.xact = late.xact limit 1
           ) t
       ) or exists (
           select from inturn_ready r where r.sequence_number >= d.ready_from and r.sequence_number <= $2
       ) or exists (
           select from inturn_ready r
           where (r.place, r.turn, r.sequence_number) > (d.line_place, d.line_turn, d.line_number) and r.place <= $2
       ) or exists (
           select from inturn_message m where m.sequence_number > d.listed and m.sequence_number <= $2
       ) or coalesce(d.due_ms <= $3, false) or coalesce((
           select m.sent_ms from inturn_message m
           where m.sequence_number >= d.floor and m.sequence_number <= $2 order by m.sequence_number limit 1
       ) <= $4, false)
from (select * from inturn_desk where queue = $1 order by version desc limit 1) d;

-- name: keep_desk
update inturn_desk
set tokens = $2, gone = $3, floor = $4, ready_from = coalesce($5::bigint, ready_from), ran_out = $6, due_ms = $7,
    drawn_to = $8, drawn_but = $9, version = version + 1,
    line_place = case when $14 then greatest(line_place, back_place) else coalesce($11::bigint, line_place) end,
    line_turn = case when $14 then back_turn + 1 else coalesce($12::bigint, line_turn) end,
    line_number = case when $14 then 9223372036854775807 else coalesce($13::bigint, line_number) end
where queue = $1 and version = $10;

-- name: list
with {firsts}, added as (
    insert into inturn_ready (sequence_number, grp)
    select f.sequence_number, f.grp from firsts f where {are_free}
    on conflict do nothing
)
update inturn_desk set listed = (select max(sequence_number) from chunk)
where queue = $1 and version = $5 and exists (select from chunk) returning listed, (select count(*) from chunk);

-- name: list_by_priority
-- The same as list, with the places of `ahead` in core/queue/ready_groups.py.
with {firsts}, added as (
    insert into inturn_ready (sequence_number, grp, place, turn)
    select f.sequence_number, f.grp, case when p.lead <> 0 then greatest(f.sequence_number - p.lead, $6::bigint + 1) end,
           case when p.lead <> 0 then 1 else 0 end
    from firsts f
    left join lateral (
        select priority * $7::bigint as lead from inturn_priority where queue = $1 and grp = f.grp offset 0
    ) p on true
    where {are_free}
    on conflict do nothing
)
update inturn_desk
set listed = (select max(sequence_number) from chunk), line_place = $6, line_turn = 0, line_number = 0
where queue = $1 and version = $5 and exists (select from chunk) returning listed, (select count(*) from chunk);

-- name: refresh_fresh
-- Until a message of the queue is returned for the first time, each place is a sequence number.
with added as (
    insert into inturn_ready (sequence_number, grp)
    select m.sequence_number, t.grp
    from unnest($2::text[]) t (grp)
    cross join lateral (
        select m.sequence_number from inturn_message m
        where m.queue = $1 and m.grp = t.grp and m.done = 0 and m.sequence_number + 0 >= $3
        order by m.sequence_number + 0 limit 1
    ) m
    where m.sequence_number <= (select listed from inturn_desk where queue = $1 and version = $4)
    and not exists (
        select from inturn_session s where s.queue = $1 and s.grp = t.grp offset 0
    ) and not exists (
        select from inturn_hold h
        where h.queue = $1 and h.grp = t.grp and h.sequence_number + 0 >= m.sequence_number and not h.deferred
              and coalesce(h.until_ms, -1) >= 0
              and (h.sequence_number = m.sequence_number or h.token is not null) offset 0
    )
    on conflict do nothing returning sequence_number
)
update inturn_desk set ready_from = least(ready_from, (select min(sequence_number) from added))
where queue = $1 and version = $4 and exists (select from added);

-- name: refresh_fresh_singles
with added as (
    insert into inturn_ready (sequence_number)
    select m.sequence_number from inturn_message m
    where m.sequence_number = any($2::bigint[]) and m.done + 0 = 0
    and m.sequence_number <= (select listed from inturn_desk where queue = $1 and version = $3)
    and not exists (
        select from inturn_hold h where h.sequence_number = m.sequence_number and coalesce(h.until_ms, -1) >= 0 offset 0
    )
    on conflict do nothing returning sequence_number
)
update inturn_desk set ready_from = least(ready_from, (select min(sequence_number) from added))
where queue = $1 and version = $3 and exists (select from added);

-- name: refresh
-- The rules are those of `joined` in core/queue/ready_groups.py: `behind` and `backs` are `back` for each head.
with {ready_again}, placed as (
    select sequence_number, grp, listed, behind, turn as back_turn,
           case when is_back or sequence_number <= behind then behind end as place,
           case when is_back then turn when sequence_number <= behind then turn + 1 else 0 end as turn
    from numbered
), added as (
    insert into inturn_ready (sequence_number, grp, place, turn)
    select sequence_number, grp, place, turn from placed where place is not null or sequence_number <= listed
    on conflict do nothing returning sequence_number, place, turn
)
update inturn_desk
set ready_from = least(ready_from, (select min(sequence_number) from added where place is null)),
    back_place = greatest(back_place, (select max(behind) from placed)),
    back_turn = greatest(back_turn, (select max(back_turn) from placed)),
    line_number = least(line_number, (
        select min(a.sequence_number) - 1 from added a where a.place = line_place and a.turn = line_turn
    ))
where queue = $1 and version = $6 and exists (select from added);

-- name: refresh_by_priority
-- The same as refresh, with the places of `ahead` in core/queue/ready_groups.py. A group that moves ahead may get a place
-- that a receiver has already passed, so the ready queue is read from its beginning.
with {ready_again}, placed as (
    select n.sequence_number, n.grp, n.listed, n.behind, n.turn as back_turn,
           case when n.is_back then n.behind
                when p.lead <> 0 then greatest(greatest(n.sequence_number, n.behind) - p.lead, $7::bigint + 1)
                when n.sequence_number <= n.behind then n.behind end as place,
           case when n.is_back then n.turn
                when n.sequence_number <= n.behind then n.turn + 1
                when p.lead <> 0 then 1 else 0 end as turn
    from numbered n
    left join lateral (
        select priority * $8::bigint as lead from inturn_priority where queue = $1 and grp = n.grp offset 0
    ) p on true
), added as (
    insert into inturn_ready (sequence_number, grp, place, turn)
    select sequence_number, grp, place, turn from placed where place is not null or sequence_number <= listed
    on conflict do nothing returning sequence_number, place, turn
)
update inturn_desk
set ready_from = least(ready_from, (select min(sequence_number) from added where place is null)),
    back_place = greatest(back_place, (select max(behind) from placed)),
    back_turn = greatest(back_turn, (select max(back_turn) from placed)),
    line_place = $7, line_turn = 0, line_number = 0
where queue = $1 and version = $6 and exists (select from added);

-- name: take_off
delete from inturn_ready where sequence_number = (
    select m.sequence_number from inturn_message m
    where m.queue = $1 and m.grp = $2 and m.done = 0 and m.sequence_number + 0 >= $3
    order by m.sequence_number + 0 limit 1
) and not exists (
    select from inturn_hold h where h.sequence_number = inturn_ready.sequence_number and h.attempts > 0 offset 0
)
returning sequence_number;

-- name: not_ready
delete from inturn_ready where sequence_number = any($1::bigint[]);

-- name: next_fresh
with heads as materialized (
    select r.sequence_number, r.grp from inturn_ready r
    where r.sequence_number >= greatest($2, (select ready_from from inturn_desk where queue = $1 and version = $7))
          and r.sequence_number <= $3
    order by r.sequence_number limit $4
)
select r.sequence_number, 0::bigint, r.sequence_number, r.grp,
       {messages_of_heads};

-- name: mark_back
update inturn_desk set back_turn = 2, line_place = $3, line_turn = 0, line_number = 0
where queue = $1 and version = $2 and back_turn = 0;

-- name: next
with heads as materialized (
    select * from (
        (select r.sequence_number, r.grp, r.sequence_number as place, 0::bigint as turn from inturn_ready r
         where r.sequence_number >= greatest($2, (select ready_from from inturn_desk where queue = $1 and version = $7))
               and r.sequence_number <= $3 and r.place is null
         order by r.sequence_number limit $4)
        union all
        (select r.sequence_number, r.grp, r.place, r.turn from inturn_ready r
         where (r.place, r.turn, r.sequence_number) > (
                   coalesce($8, (select line_place from inturn_desk where queue = $1 and version = $7)),
                   coalesce($9, (select line_turn from inturn_desk where queue = $1 and version = $7)),
                   coalesce($10, (select line_number from inturn_desk where queue = $1 and version = $7))
               )
               and r.place <= $3
         order by r.place, r.turn, r.sequence_number limit $4)
    ) r order by place, turn, sequence_number limit $4
)
select r.place, r.turn, r.sequence_number, r.grp,
       {messages_of_heads};

-- name: next_of_group
select {message}, {hold}
from inturn_message m
{hold_of_message}
where m.queue = $1 and m.grp = $2 and m.done = 0 and m.sequence_number + 0 >= $3
and not exists (select from inturn_session s where s.queue = $1 and s.grp = $2)
and not exists (
    select from inturn_hold b
    where b.queue = $1 and b.grp = $2 and b.sequence_number + 0 >= $3 and not b.deferred and b.token is not null
)
order by m.sequence_number + 0 limit $4;

-- name: lease
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

-- name: over
select h.sequence_number, h.grp, {hold},
       {is_head}
from inturn_hold h where h.queue = $1 and h.until_ms >= $5 and h.until_ms <= $3
order by h.until_ms limit $4 for update of h skip locked;

-- name: next_due
select least(
    (select until_ms from inturn_hold where queue = $1 and until_ms >= $2 order by until_ms limit 1),
    (select until_ms from inturn_session where queue = $1 and until_ms >= $2 order by until_ms limit 1)
);

-- name: begun_later
select 0 as kind, queue, sequence_number, null::text as grp, since_ms, until_ms from inturn_hold
where until_ms is not null and since_ms > $1
union all
select 1, queue, null, grp, since_ms, until_ms from inturn_session where until_ms is not null and since_ms > $1
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
insert into inturn_touched (queue, due_ms) select queue, min(until_ms) from moved group by queue;

-- name: end_lock_at
with ended as (
    update inturn_session set until_ms = $1, since_ms = $2
    where queue = $3 and grp = $4 and since_ms = $5 and coalesce(until_ms, -1) = $6 returning queue
)
insert into inturn_touched (queue, due_ms) select queue, $1 from ended;

-- Rule 9 of core/queue/delivery.py.
-- name: retire
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
    returning sequence_number, grp, done
), unheld as (
    delete from inturn_hold where sequence_number = any(array(select sequence_number from removed))
), unlisted as (
    delete from inturn_ready where sequence_number = any(array(select sequence_number from removed))
)
select sequence_number, grp, done from removed;

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
    update inturn_message set done = 1
    where sequence_number = any(array(select sequence_number from held where sequence_number > $5))
)
select sequence_number from held;

-- name: there
select sequence_number from inturn_message where sequence_number = any($1::bigint[]) and done <> 1;

-- name: lock_holds
select 1 from unnest($1::bigint[], $2::bigint[]) c (number, token)
cross join lateral (
    select 1 from inturn_hold h
    where h.sequence_number = c.number and (c.token is null or h.token = c.token) for update
) h;

-- name: settling
select m.sequence_number, m.grp, m.done, m.origin,
       {hold}
from inturn_message m
{hold_of_message}
where m.sequence_number = any($1::bigint[]);

-- name: earlier
select c.sequence_number, array(
    select e.sequence_number from inturn_message e
    where e.queue = c.queue and e.grp = c.grp and e.done = 0 and e.sequence_number + 0 < c.sequence_number
          and e.sequence_number + 0 >= (
              select floor from inturn_desk d where d.queue = c.queue order by d.version desc limit 1
          )
    order by e.sequence_number + 0 limit $2
)
from inturn_message c where c.sequence_number = any($1::bigint[]) and c.grp is not null;

-- name: remove_messages
delete from inturn_message where sequence_number = any($1::bigint[]);

-- name: set_done
update inturn_message set done = $2 where sequence_number = any($1::bigint[]);

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
        came_from = excluded.came_from, note = excluded.note, done = 0
    returning sequence_number, grp
), touched as (
    insert into inturn_touched (queue, grp, number) select $1, grp, case when grp is null then sequence_number end
    from moved
)
update inturn_desk
set gone = gone - (select count(*) from moved), floor = least(floor, (select min(sequence_number) from moved))
where queue = $1 and version >= (select max(version) from inturn_desk where queue = $1);

-- name: move_within
update inturn_message
set sent_ms = $1, came_from = coalesce(came_from, $2), done = 0, note = ($4::text[])[array_position($3::bigint[], sequence_number)]
where sequence_number = any($3::bigint[]);

-- name: not_first
delete from inturn_ready where sequence_number = any(array(
    select (
        select e.sequence_number from inturn_message e
        where e.queue = $1 and e.grp = c.grp and e.done = 0 and e.sequence_number + 0 > c.number
        order by e.sequence_number + 0 limit 1
    ) from unnest($2::bigint[], $3::text[]) c (number, grp)
));

-- name: first_of_group
select sequence_number from inturn_message
where queue = $1 and grp = $2 and done = 0 and sequence_number + 0 >= $3 order by sequence_number + 0 limit 1;

-- name: one_message
select {message}, {hold}
from inturn_message m
{hold_of_message}
where m.sequence_number = $1 and m.done <> 1;

-- name: group_holds
select h.sequence_number, {hold} from inturn_hold h where queue = $1 and grp = $2 and not deferred;

-- name: fetched_holds
select h.sequence_number, {hold} from inturn_hold h where queue = $1 and grp = $2 and deferred and token is not null;

-- name: keep_leases
update inturn_hold set until_ms = $4, since_ms = $5
where sequence_number = any(array(
    select sequence_number from inturn_hold
    where queue = $1 and grp = $2 and not deferred and token = $3 for update skip locked
) || array(
    select sequence_number from inturn_hold
    where queue = $1 and grp = $2 and deferred and token = $3 for update skip locked
));

-- name: end_leases
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
insert into inturn_session (queue, grp, token, until_ms, since_ms, note, parked_ms) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (queue, grp) do update
set token = excluded.token, until_ms = excluded.until_ms, since_ms = excluded.since_ms,
    note = excluded.note, parked_ms = excluded.parked_ms;

-- name: remove_group_lock
delete from inturn_session where queue = $1 and grp = $2;

-- name: locks_over
select grp, token, until_ms, since_ms, note, parked_ms from inturn_session
where queue = $1 and until_ms >= $4 and until_ms <= $2 order by until_ms limit $3 for update skip locked;

-- name: next_group
select * from (
    (select r.sequence_number as place, 0::bigint as turn, r.sequence_number, r.grp from inturn_ready r
     where r.sequence_number >= greatest(
               coalesce($3, 0) + 1, (select ready_from from inturn_desk where queue = $1 and version = $7)
           )
           and r.sequence_number <= $2 and r.grp is not null and r.place is null
     order by r.sequence_number limit $6)
    union all
    (select r.place, r.turn, r.sequence_number, r.grp from inturn_ready r
     where (r.place, r.turn, r.sequence_number) > (
               coalesce($3, (select line_place from inturn_desk where queue = $1 and version = $7)),
               coalesce($4, (select line_turn from inturn_desk where queue = $1 and version = $7)),
               coalesce($5, (select line_number from inturn_desk where queue = $1 and version = $7))
           )
           and r.place <= $2 and r.grp is not null
     order by r.place, r.turn, r.sequence_number limit $6)
) r order by place, turn, sequence_number limit $6;

-- name: session_messages
select {message}, {hold}
from inturn_message m
{hold_of_message}
where m.queue = $1 and m.grp = $2 and m.done = 0 and m.sequence_number + 0 >= $3 and h.token is distinct from $4
order by m.sequence_number + 0 limit $5;

-- name: state
select state from inturn_state where queue = $1 and grp = $2;

-- name: set_state
insert into inturn_state (queue, grp, state) values ($1, $2, $3)
on conflict (queue, grp) do update set state = excluded.state;

-- name: remove_state
delete from inturn_state where queue = $1 and grp = $2;

-- name: remove_states
delete from inturn_state where queue = $1;

-- name: hidden
select count(*) filter (where token is not null), count(*) filter (where token is null)
from inturn_hold where queue = $1 and until_ms > $2;

-- name: read
select {message} from inturn_message m where sequence_number > $1 and sequence_number <= $2 order by sequence_number limit $3;

-- name: read_pending
select {message} from inturn_message m where sequence_number > $1 and sequence_number <= $2 and done <> 1
order by sequence_number limit $3;

-- name: read_deferred
select {message} from inturn_message m where queue = $1 and sequence_number > $2 and done = 2 order by sequence_number limit $3;

-- name: read_group
(select {message} from inturn_message m where queue = $1 and grp = $2 and sequence_number + 0 > $3 and done = 0
 order by sequence_number + 0 limit $4)
union all
(select {message} from inturn_message m where queue = $1 and grp = $2 and sequence_number > $3 and done = 2
 order by sequence_number limit $4)
order by sequence_number limit $4;

-- name: read_group_deferred
select {message} from inturn_message m where queue = $1 and grp = $2 and sequence_number > $3 and done = 2
order by sequence_number limit $4;

-- name: groups
select grp, count(*), min(sequence_number) from inturn_message
where queue = $1 and done = 0 and grp is not null group by grp order by min(sequence_number) limit $2;

-- name: group
select count(*), min(sequence_number) from inturn_message where queue = $1 and grp = $2 and done = 0;

-- name: ungrouped
select sequence_number from inturn_message
where queue = $1 and grp is null and done = 0 order by sequence_number limit $2;

-- name: channel
select 'inturn_' || ('inturn_meta'::regclass::oid)::text;

-- Not the tables' own identity, which a copy by `createdb -T` or of the server's files shares.
-- name: here
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
