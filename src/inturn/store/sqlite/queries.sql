-- Named statements. Each reads only the rows that it returns, whatever the size of the queue, except `groups` and
-- `ungrouped`, which only users call, `next_ready_group`, which skips ready messages without a group, and `log_place`,
-- which skips messages that are read next.

-- name: queues
select q.number, q.name, q.settings, q.readers, q.created_ms, q.last_token, q.counted_to, q.indexed_to,
       q.depth + count(m.sequence_number), coalesce(max(m.sequence_number), q.counted_to),
       q.last_requeue_place, q.last_requeue_rank
from inturn_queue q
left join inturn_message m on m.sequence_number > q.counted_to and m.sequence_number <= (q.number + 1) << ?
group by q.number;

-- name: save_queue
insert into inturn_queue (number, name, settings, readers, created_ms, depth, counted_to, last_token, indexed_to)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (number) do update
set settings = excluded.settings, readers = excluded.readers,
    depth = excluded.depth, counted_to = excluded.counted_to,
    last_token = excluded.last_token, indexed_to = excluded.indexed_to;

-- name: queue_count
select value from inturn_meta where name = 'queues';

-- name: save_queue_count
insert or replace into inturn_meta (name, value) values ('queues', ?);

-- name: save_queue_counts
update inturn_queue set depth = ?, counted_to = ?, last_token = ?, indexed_to = ? where number = ?;

-- name: purge_messages
delete from inturn_message where sequence_number between ? and ?;

-- name: purge_ready
delete from inturn_ready where sequence_number between ? and ?;

-- name: purge_ready_places
delete from inturn_ready_place where place between ? and ?;

-- name: purge_holds
delete from inturn_hold where sequence_number between ? and ?;

-- name: purge_pending
delete from inturn_pending where queue = ?;

-- name: purge_leases
delete from inturn_lease where queue = ?;

-- name: remove_read_messages
delete from inturn_message where sequence_number in (
    select sequence_number from inturn_message indexed by inturn_acknowledged
    where status = 1 and sequence_number between ? and ? order by sequence_number limit ?
);

-- name: add_message
insert into inturn_message
    (sequence_number, queue, body, content, grp, revision, dedup_id, attributes, sent_ms)
values (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_plain_message
insert into inturn_message (sequence_number, queue, body, content, grp, sent_ms) values (?, ?, ?, ?, ?, ?);

-- name: add_message_with_dedup_id
insert into inturn_message (sequence_number, queue, body, content, grp, dedup_id, sent_ms) values (?, ?, ?, ?, ?, ?, ?);

-- name: add_message_with_revision
insert into inturn_message (sequence_number, queue, body, content, grp, revision, sent_ms) values (?, ?, ?, ?, ?, ?, ?);

-- name: add_moved_message
insert or replace into inturn_message
    (sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note, queue)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: find_dedup
select sequence_number, until_ms, revision from inturn_dedup where queue = ? and scope = ? and id = ?;

-- name: save_dedup
insert or replace into inturn_dedup (queue, scope, id, sequence_number, until_ms, revision) values (?, ?, ?, ?, ?, ?);

-- name: add_dedup
insert or ignore into inturn_dedup (queue, scope, id, sequence_number, until_ms) values (?, ?, ?, ?, ?);

-- name: add_dedup_with_revision
insert or ignore into inturn_dedup (queue, scope, id, sequence_number, until_ms, revision) values (?, ?, ?, ?, ?, ?);

-- name: remove_new_dedup
delete from inturn_dedup where queue = ? and scope = ? and id = ? and sequence_number > ?;

-- name: dedup_sweep_end
select queue, scope, id from inturn_dedup where (queue, scope, id) > (?, ?, ?) order by queue, scope, id limit 1 offset ?;

-- name: sweep_dedup
delete from inturn_dedup
where (queue, scope, id) > (?, ?, ?) and (queue, scope, id) <= (?, ?, ?) and until_ms <= ?;

-- name: add_ready_if_first
-- is_ready() in core/queue/ready_groups.py for a group whose only candidate for its first message is not delayed.
insert into inturn_ready (sequence_number, grp)
select ?1, ?3 where not exists (
    select 1 from inturn_pending where queue = ?2 and grp = ?3 and sequence_number < ?1
) and not exists (
    select 1 from inturn_group_lock where queue = ?2 and grp = ?3 and (token is not null or note is not null)
);

-- name: add_ready_place_if_first
-- add_ready_if_first for a group that has a priority.
insert into inturn_ready_place (place, rank, sequence_number, grp)
select ?4, ?5, ?1, ?3 where not exists (
    select 1 from inturn_pending where queue = ?2 and grp = ?3 and sequence_number < ?1
) and not exists (
    select 1 from inturn_group_lock where queue = ?2 and grp = ?3 and (token is not null or note is not null)
);

-- name: add_ready
insert or ignore into inturn_ready (sequence_number, grp) values (?, ?);

-- name: remove_ready
delete from inturn_ready where sequence_number = ?;

-- name: next_ready
select sequence_number, grp from inturn_ready
where sequence_number > ? and sequence_number <= ? order by sequence_number limit ?;

-- name: is_ready
select 1 from inturn_ready where sequence_number = ?;

-- name: next_ready_place
select place, rank, sequence_number, grp from inturn_ready_place
where place > ? and place <= ? order by place, rank, sequence_number limit ?;

-- name: next_ready_group_place
select place, rank, sequence_number, grp from inturn_ready_place
where place > ? and place <= ? and grp is not null order by place, rank, sequence_number limit ?;

-- name: has_ready_place
select 1 from inturn_ready_place where sequence_number = ?;

-- name: remove_ready_place
delete from inturn_ready_place where sequence_number = ?;

-- name: add_ready_place
insert into inturn_ready_place (place, rank, sequence_number, grp) values (?, ?, ?, ?);

-- name: save_last_requeue
update inturn_queue set last_requeue_place = ?, last_requeue_rank = ? where number = ?;

-- name: first_of_group
select sequence_number from inturn_pending where queue = ? and grp = ? order by sequence_number limit 1;

-- name: next_pending
select sequence_number from inturn_pending
where queue = ? and grp = ? and sequence_number > ? order by sequence_number limit 1;

-- name: group_head
-- The input of is_ready() in core/queue/ready_groups.py; a lease blocks its group, as a lock or a park does.
-- ?3: the first message of the group that is not in the table, if any.
with first (head) as (select coalesce((
    select sequence_number from inturn_pending where queue = ?1 and grp = ?2 order by sequence_number limit 1
), (
    select sequence_number from inturn_message where sequence_number = ?3 and status = 0
)))
select head, exists (select 1 from inturn_hold where queue = ?1 and grp = ?2 and deferred = 0),
       exists (select 1 from inturn_group_lock where queue = ?1 and grp = ?2 and (token is not null or note is not null))
           or exists (select 1 from inturn_lease where queue = ?1 and grp = ?2)
from first where head is not null;

-- name: newest
select sequence_number, grp from inturn_message
where sequence_number > ?2 and sequence_number <= ?3 and grp is not null
    -- not `status = 0`: that is behind the body, all of which would be read
    and sequence_number not in (
        select sequence_number from inturn_message indexed by inturn_acknowledged
        where status = 1 and sequence_number > ?2 and sequence_number <= ?3
    )
    and sequence_number not in (
        select sequence_number from inturn_message indexed by inturn_deferred
        where queue = ?1 and status = 2 and sequence_number > ?2 and sequence_number <= ?3
    )
order by sequence_number;

-- name: newest_of_group
select sequence_number from inturn_message
where sequence_number > ?2 and sequence_number <= ?3 and grp = ?4
    and sequence_number not in (
        select sequence_number from inturn_message indexed by inturn_acknowledged
        where status = 1 and sequence_number > ?2 and sequence_number <= ?3
    )
    and sequence_number not in (
        select sequence_number from inturn_message indexed by inturn_deferred
        where queue = ?1 and status = 2 and sequence_number > ?2 and sequence_number <= ?3
    )
order by sequence_number limit ?5;

-- name: index_pending
insert into inturn_pending (queue, grp, sequence_number)
select ?1, grp, sequence_number from inturn_message
where sequence_number > ?2 and sequence_number <= ?3 and grp is not null
    and sequence_number not in (
        select sequence_number from inturn_message indexed by inturn_acknowledged
        where status = 1 and sequence_number > ?2 and sequence_number <= ?3
    )
    and sequence_number not in (
        select sequence_number from inturn_message indexed by inturn_deferred
        where queue = ?1 and status = 2 and sequence_number > ?2 and sequence_number <= ?3
    )
order by grp, sequence_number;

-- name: still_pending
select sequence_number from inturn_message
where sequence_number in (select value from json_each(?)) and status = 0 order by sequence_number;

-- name: remove_pending
delete from inturn_pending where queue = ? and grp = ? and sequence_number = ?;

-- name: remove_pending_range
-- All messages between two, if their number matches.
delete from inturn_pending
where queue = ?1 and grp = ?2 and sequence_number between ?3 and ?4 and ?5 = (
    select count(*) from inturn_pending where queue = ?1 and grp = ?2 and sequence_number between ?3 and ?4
);

-- name: add_pending
insert or ignore into inturn_pending (queue, grp, sequence_number) values (?, ?, ?);

-- name: group_messages
select m.sequence_number, m.body, m.content, m.grp, m.revision, m.dedup_id, m.attributes, m.sent_ms, m.origin,
       m.came_from, m.note
from inturn_pending p join inturn_message m on m.sequence_number = p.sequence_number
where p.queue = ? and p.grp = ? order by p.sequence_number limit ?;

-- name: one_message
select sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note
from inturn_message where sequence_number = ? and status <> 1;

-- name: messages
select sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note
from inturn_message where sequence_number in (select value from json_each(?)) and status = 0 order by sequence_number;

-- name: has_hold
select 1 from inturn_hold where sequence_number > ? and sequence_number <= ? limit 1;

-- name: hold
select sequence_number, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed, grp
from inturn_hold
where sequence_number = ?;

-- name: holds
select sequence_number, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed, grp
from inturn_hold
where sequence_number in (select value from json_each(?));

-- name: group_holds
select sequence_number, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed from inturn_hold
where queue = ? and grp = ? and deferred = 0;

-- name: fetched_holds
select sequence_number, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed from inturn_hold
where queue = ? and grp = ? and deferred = 1 and token is not null;

-- name: extend_session_holds
update inturn_hold set until_ms = ?4, since_ms = ?5 where queue = ?1 and grp = ?2 and deferred = 0 and token = ?3;

-- name: extend_fetched_holds
update inturn_hold set until_ms = ?4, since_ms = ?5 where queue = ?1 and grp = ?2 and deferred = 1 and token = ?3;

-- name: set_hold
insert or replace into inturn_hold
    (sequence_number, queue, grp, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_holds
insert into inturn_hold
    (sequence_number, queue, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed)
select value, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 from json_each(?1);

-- name: add_lease
insert into inturn_lease
    (queue, grp, numbers, messages, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: leases
select token, grp, numbers, until_ms from inturn_lease
where queue = ? and token in (select value from json_each(?));

-- name: lease_holds
select value, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed
from inturn_lease, json_each(numbers)
where queue = ? and grp = ?;

-- name: shrink_lease
update inturn_lease set numbers = ?, messages = ? where queue = ? and grp = ?;

-- name: end_lease
delete from inturn_lease where queue = ? and grp = ?;

-- name: split_lease
insert into inturn_hold
    (sequence_number, queue, grp, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed)
select value, queue, grp, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed
from inturn_lease, json_each(numbers) where queue = ? and grp = ?;

-- name: has_expired
select 1 from inturn_group_lock where queue = ?1 and until_ms <= ?2
union all select 1 from inturn_lease where queue = ?1 and until_ms <= ?2
union all select 1 from inturn_hold where queue = ?1 and until_ms <= ?2 limit 1;

-- name: expired_leases
select grp from inturn_lease where queue = ? and until_ms <= ? order by until_ms limit ?;

-- name: next_lease_end
select until_ms, since_ms from inturn_lease where queue = ? order by until_ms limit 1;

-- name: end_lease_at
update inturn_lease set until_ms = ?1, since_ms = ?2
where queue = ?3 and grp = ?4 and since_ms = ?5 and until_ms = ?6;

-- name: end_lease_parts_at
update inturn_hold set until_ms = ?1, since_ms = ?2
where queue = ?3 and grp = ?4 and deferred = 0 and since_ms = ?5 and until_ms = ?6;

-- name: message_group
select grp from inturn_message where sequence_number = ?;

-- name: remove_hold
delete from inturn_hold where sequence_number = ?;

-- name: remove_holds
delete from inturn_hold where sequence_number in (select value from json_each(?));

-- name: expired_holds
select sequence_number, grp, until_ms, token, attempts, since_ms, first_ms, deferred, lapsed from inturn_hold
where queue = ? and until_ms <= ? order by until_ms, sequence_number limit ?;

-- name: hidden
-- The number of messages for which is_hidden() in core/queue/delivery.py is true.
select count(*) filter (where token is not null)
           + (select coalesce(sum(messages), 0) from inturn_lease where queue = ?1 and until_ms > ?2),
       count(*) filter (where token is null)
from inturn_hold where queue = ?1 and until_ms > ?2;

-- name: next_hold_end
select until_ms, since_ms from inturn_hold where queue = ? and until_ms is not null order by until_ms limit 1;

-- name: spans_begun_after
select 0 as kind, queue, sequence_number as key, since_ms, until_ms from inturn_hold
where until_ms is not null and since_ms > ?1
union all select 1, queue, grp, since_ms, until_ms from inturn_lease where since_ms > ?1
union all select 2, queue, grp, since_ms, until_ms from inturn_group_lock where until_ms is not null and since_ms > ?1
order by until_ms limit ?2;

-- name: end_hold_at
update inturn_hold set until_ms = ?1, since_ms = ?2
where queue = ?3 and sequence_number = ?4 and since_ms = ?5 and until_ms = ?6;

-- name: remove_message
delete from inturn_message where sequence_number = ?;

-- name: remove_messages
delete from inturn_message where sequence_number in (select value from json_each(?));

-- name: defer_message
update inturn_message set status = 2 where sequence_number = ?;

-- name: acknowledge
update inturn_message set status = 1 where sequence_number in (select value from json_each(?));

-- name: oldest_messages
select sequence_number, grp, status, sent_ms from inturn_message
where sequence_number between ? and ? order by sequence_number limit ?;

-- name: read
select sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note
from inturn_message where sequence_number > ? and sequence_number <= ? order by sequence_number limit ?;

-- name: log
select sequence_number, grp, revision, dedup_id, body, content, attributes, sent_ms
from inturn_message where sequence_number > ? and sequence_number <= ? order by sequence_number limit ?;

-- name: log_size
select count(*), sum(length(cast(body as blob))), min(content), max(content), count(revision), count(attributes)
from inturn_message where sequence_number > ? and sequence_number <= ?;

-- name: log_packed
select cast(group_concat(sequence_number) filter (where ?3) as blob),
       count(grp), cast(group_concat(coalesce(grp, char(1)), char(0)) as blob),
       cast(group_concat(coalesce(revision, 0)) as blob),
       count(dedup_id), cast(group_concat(coalesce(dedup_id, char(1)), char(0)) as blob),
       cast(group_concat(body, char(0)) as blob),
       cast(group_concat(content + 4 * (revision is null), '') filter (where ?4) as blob),
       cast(group_concat(coalesce(attributes, char(1)), char(0)) filter (where ?5) as blob),
       cast(group_concat(sent_ms) as blob)
from inturn_message where sequence_number > ?1 and sequence_number <= ?2;

-- name: read_pending
select sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note
from inturn_message where sequence_number > ? and sequence_number <= ? and status <> 1
order by sequence_number limit ?;

-- name: read_deferred
select sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note
from inturn_message where queue = ? and sequence_number > ? and status = 2 order by sequence_number limit ?;

-- name: read_group
select sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note
from inturn_pending join inturn_message using (queue, grp, sequence_number)
where queue = ?1 and grp = ?2 and sequence_number > ?3
union all
select sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note
from inturn_message where queue = ?1 and grp = ?2 and sequence_number > ?3 and status = 2
order by sequence_number limit ?4;

-- name: read_group_deferred
select sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note
from inturn_message where queue = ? and grp = ? and sequence_number > ? and status = 2 order by sequence_number limit ?;

-- name: groups
select grp, count(*), min(sequence_number) from inturn_pending where queue = ? group by grp order by 3 limit ?;

-- name: group
select count(*), min(sequence_number) from inturn_pending where queue = ? and grp = ?;

-- name: ungrouped
-- Messages without a group with their state: free or hidden.
select sequence_number from inturn_ready where sequence_number > ?2 and sequence_number <= ?3 and grp is null
union
select sequence_number from inturn_ready_place where place > ?2 and place <= ?3 and grp is null
union
select sequence_number from inturn_hold where queue = ?1 and until_ms is not null and grp is null and deferred = 0
order by sequence_number limit ?4;

-- name: group_lock
select token, until_ms, since_ms, note, parked_ms from inturn_group_lock where queue = ? and grp = ?;

-- name: set_group_lock
insert into inturn_group_lock (queue, grp, token, until_ms, since_ms, note, parked_ms) values (?, ?, ?, ?, ?, ?, ?)
on conflict (queue, grp) do update
set token = excluded.token, until_ms = excluded.until_ms, since_ms = excluded.since_ms,
    note = excluded.note, parked_ms = excluded.parked_ms;

-- name: expired_group_locks
select grp, token, until_ms, since_ms, note, parked_ms from inturn_group_lock
where queue = ? and until_ms <= ? order by until_ms limit ?;

-- name: next_group_lock_end
select until_ms, since_ms from inturn_group_lock where queue = ? and until_ms is not null order by until_ms limit 1;

-- name: end_group_lock_at
update inturn_group_lock set until_ms = ?1, since_ms = ?2
where queue = ?3 and grp = ?4 and since_ms = ?5 and until_ms = ?6;

-- name: next_ready_group
select sequence_number, grp from inturn_ready
where sequence_number > ? and sequence_number <= ? and grp is not null order by sequence_number limit ?;

-- name: session_messages
select m.sequence_number, m.body, m.content, m.grp, m.revision, m.dedup_id, m.attributes, m.sent_ms, m.origin,
       m.came_from, m.note
from inturn_pending p
join inturn_message m on m.sequence_number = p.sequence_number
left join inturn_hold h on h.sequence_number = p.sequence_number
where p.queue = ? and p.grp = ? and h.token is not ? order by p.sequence_number limit ?;

-- name: session_state
select session_state from inturn_group_lock where queue = ? and grp = ?;

-- name: set_session_state
update inturn_group_lock set session_state = ? where queue = ? and grp = ?;

-- name: remove_unused_group_lock
delete from inturn_group_lock
where queue = ? and grp = ? and token is null and note is null and session_state is null;

-- name: save_key
insert into inturn_key (space, key, record, until_ms) values (?, ?, ?, ?)
on conflict (space, key) do update set record = excluded.record, until_ms = excluded.until_ms;

-- name: expired_keys
select space, key from inturn_key where until_ms <= ? order by until_ms limit ?;

-- name: last_key_token
select value from inturn_meta where name = 'last_key_token';

-- name: save_last_key_token
insert or replace into inturn_meta (name, value) values ('last_key_token', ?);

-- name: keys_cleared_ms
select value from inturn_meta where name = 'keys_cleared_ms';

-- name: save_keys_cleared_ms
insert or replace into inturn_meta (name, value) values ('keys_cleared_ms', ?);

-- name: pipeline
select number, name, about, counts, last_output, last_token from inturn_pipeline where name = ?;

-- name: save_pipeline
insert into inturn_pipeline (number, name, about, counts, last_output, last_token) values (?, ?, ?, ?, ?, ?)
on conflict (number) do update
set about = excluded.about, counts = excluded.counts,
    last_output = excluded.last_output, last_token = excluded.last_token;

-- name: last_pipeline
select coalesce(max(number), 0) from inturn_pipeline;

-- name: group_records
select grp, version, status, timeline, state, held, oldest_us, due_us from inturn_group
where pipeline = ? and grp in (select value from json_each(?));

-- name: group_record
select grp, version, status, timeline, state, held, oldest_us, due_us from inturn_group
where pipeline = ? and grp = ?;

-- name: set_due
update inturn_group set due_us = oldest_us + ?2 where pipeline = ?1 and status <> 'open' and status = 'waiting';

-- name: postpone_due
update inturn_group set due_us = ?4
where pipeline = ?1 and grp in (select value from json_each(?2)) and due_us <= ?3;

-- name: group_versions
select grp, version from inturn_group where pipeline = ? and grp in (select value from json_each(?));

-- name: save_group_records
insert into inturn_group (pipeline, grp, version, status, timeline, state, held, oldest_us, due_us, state_json)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (pipeline, grp) do update
set version = excluded.version, status = excluded.status, timeline = excluded.timeline, state = excluded.state,
    held = excluded.held, oldest_us = excluded.oldest_us, due_us = excluded.due_us, state_json = excluded.state_json;

-- name: begun_tasks
select grp, begun_tasks, begun_until_ms from inturn_group
where pipeline = ? and grp in (select value from json_each(?)) and begun_tasks > 0;

-- name: begin_tasks
update inturn_group set begun_tasks = ?3, begun_until_ms = ?4 where pipeline = ?1 and grp = ?2;

-- name: held_at_positions
select epoch, position, tie, id, since_us, digest, content from inturn_held
where pipeline = ? and grp = ? and position in (select value from json_each(?));

-- name: held_with_ids
select epoch, position, tie, id, since_us, digest, content from inturn_held
where pipeline = ? and grp = ? and id in (select value from json_each(?)) and id <> '';

-- name: add_held
insert or replace into inturn_held (pipeline, grp, epoch, position, tie, id, since_us, digest, content)
values (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: remove_held
delete from inturn_held where pipeline = ? and grp = ? and epoch = ? and position = ? and tie = ? and id = ?;

-- name: held_from
select epoch, position, tie, id, since_us, digest, content from inturn_held
where pipeline = ? and grp = ? and (epoch, position, tie, id) >= (?, ?, ?, ?) order by epoch, position, tie, id limit ?;

-- name: held_head
select epoch, position, tie, id, since_us, digest, content from inturn_held
where pipeline = ? and grp = ? order by epoch, position, tie, id limit 1;

-- name: marks
select mark, digest, position from inturn_mark
where mark in (select substr(?1, value, ?3) from json_each(?2)) and pipeline = ?4 and grp = ?5 order by mark;

-- name: add_marks
insert into inturn_mark (pipeline, grp, mark, digest, position) values (?, ?, ?, ?, ?);

-- name: add_rejected
insert into inturn_rejected (pipeline, grp, reason, detail, message, at_ms) values (?, ?, ?, ?, ?, ?);

-- name: add_outputs
insert into inturn_output
    (pipeline, number, grp, epoch, revision, id, output_index, effect_id, output, trace, created_ms)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_to_outbox
insert or ignore into inturn_outbox (pipeline, grp, until_ms, token, attempts) values (?, ?, ?, 0, 0);

-- name: group_outputs
select number, grp, epoch, revision, id, output_index, effect_id, output, trace from inturn_output
where pipeline = ? and grp = ? order by number limit ?;

-- name: unclaimed
select grp, attempts, token, lapses, lapsed_to from inturn_outbox
where pipeline = ? and until_ms <= ? order by until_ms limit ?;

-- name: suspect
select grp, attempts, token, lapses, lapsed_to from inturn_outbox
where pipeline = ? and until_ms <= ? and (token <> 0 or lapses > 1) order by until_ms, grp limit 1;

-- name: claim
update inturn_outbox set token = ?, until_ms = ?, lapses = ?, lapsed_to = ? where pipeline = ? and grp = ?;

-- name: renew_claims
update inturn_outbox set until_ms = ?4 where pipeline = ?1 and grp = ?2 and token = ?3;

-- name: claimed
select attempts, lapses, lapsed_to from inturn_outbox where pipeline = ? and grp = ? and token = ?;

-- name: remove_output
delete from inturn_output where pipeline = ? and number = ?;

-- name: has_outputs
select 1 from inturn_output where pipeline = ? and grp = ? limit 1;

-- name: reschedule_delivery
update inturn_outbox set token = 0, until_ms = ?, attempts = ?, error = ?, lapses = ? where pipeline = ? and grp = ?;

-- name: remove_from_outbox
delete from inturn_outbox where pipeline = ? and grp = ?;

-- name: group_deliveries
select grp, until_ms, attempts, error, (select count(*) from inturn_output o where o.pipeline = b.pipeline and o.grp = b.grp)
from inturn_outbox b where pipeline = ? and grp in (select value from json_each(?)) order by grp limit ?;

-- name: failing_deliveries
select grp, until_ms, attempts, error, (select count(*) from inturn_output o where o.pipeline = b.pipeline and o.grp = b.grp)
from inturn_outbox b where pipeline = ? and grp > ? and attempts > 0 order by grp limit ?;

-- name: redeliver
update inturn_outbox set until_ms = 0
where pipeline = ? and until_ms >= ? and grp in (select value from json_each(?)) returning 1;

-- name: redeliver_all
update inturn_outbox set until_ms = 0 where pipeline = ? and until_ms >= ? returning 1;

-- name: add_decisions
insert into inturn_decision (pipeline, name, grp, decision) values (?, ?, ?, ?);

-- name: set_verdicts
update inturn_decision set verdict = ?3 where pipeline = ?1 and name = ?2 and verdict is null;

-- name: verdicts
select name, verdict from inturn_decision
where pipeline = ? and name in (select value from json_each(?)) and verdict is not null;

-- name: decision_groups
select name, grp from inturn_decision where pipeline = ? and name in (select value from json_each(?));

-- name: save_written_ms
insert or replace into inturn_meta (name, value) values ('written_ms', ?);

-- name: hidden_groups
select grp from inturn_hold where queue = ?1 and until_ms > ?2 and grp is not null
union select grp from inturn_lease where queue = ?1 and until_ms > ?2;

-- name: matching_lease_count
select count(*)
from (
    select json_extract(value, '$[0]') number, json_extract(value, '$[1]') token, json_extract(value, '$[5]') until_ms
    from json_each(?1)
) given
where until_ms > ?3 and (
    exists (
        select 1 from inturn_hold
        where sequence_number = given.number and token = given.token and until_ms = given.until_ms
    )
    or exists (
        select 1 from inturn_message m
        join inturn_lease l on l.queue = ?2 and l.grp = m.grp
        where m.sequence_number = given.number and l.token = given.token and l.until_ms = given.until_ms
          and given.number in (select value from json_each(l.numbers))
    )
);

-- name: remove_expired_attempts
delete from inturn_attempt where (queue, id) in (
    select queue, id from inturn_attempt where until_ms <= ? order by until_ms limit ?
);

-- name: save_attempt
insert or replace into inturn_attempt (queue, id, until_ms, leases) values (?, ?, ?, ?);

-- name: newest_incarnation
select id from inturn_incarnation where queue = ? order by after desc limit 1;

-- name: begin_incarnation
insert into inturn_incarnation (queue, after, id, created_ms, note) values (?, ?, ?, ?, ?)
on conflict (queue, after) do update
set id = excluded.id, created_ms = excluded.created_ms, note = coalesce(excluded.note, note);

-- name: rates
select grp, next_us from inturn_rate where queue = ? and grp in (select value from json_each(?));

-- name: save_rate
insert or replace into inturn_rate (queue, grp, next_us) values (?, ?, ?);

-- name: remove_expired_rates
delete from inturn_rate where queue = ?1 and grp in (
    select grp from inturn_rate where queue = ?1 and next_us < ?2 order by next_us limit ?3
);

-- name: revision
select last from inturn_revision where queue = ? and grp = ?;

-- name: revisions
select grp, last from inturn_revision where queue = ? and grp in (select value from json_each(?));

-- name: save_revision
insert or replace into inturn_revision (queue, grp, last) values (?, ?, ?);

-- name: writer
select name, epoch, until_ms, since_ms from inturn_writer where queue = ? and grp = ?;

-- name: writers
select grp, name, epoch, until_ms, since_ms from inturn_writer
where queue = ? and grp in (select value from json_each(?));

-- name: save_writer
insert or replace into inturn_writer (queue, grp, name, epoch, until_ms, since_ms) values (?, ?, ?, ?, ?, ?);

-- name: priorities
select grp, priority from inturn_priority where queue = ? and grp in (select value from json_each(?));

-- name: save_priority
insert or replace into inturn_priority (queue, grp, priority) values (?, ?, ?);

-- Sources; see store/sql/sources.py.

-- name: lock_source_partitions
select ?;

-- name: lock_source
select ?;

-- name: source_unfinished
select name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note, lag,
    record_ms, is_finished, dropped, position_form, removed_ms
from inturn_source_partition where source = ? and not is_finished order by name;

-- name: source_partition
select name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note, lag,
    record_ms, is_finished, dropped, position_form, removed_ms
from inturn_source_partition where source = ? and name = ?;

-- name: save_source_partition
insert or replace into inturn_source_partition
    (source, name, position, incarnation, owner, epoch, until_ms, is_paused, received, rejected, moved_ms, note,
     lag, record_ms, is_finished, dropped, position_form, removed_ms)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: source_rejections_by_number
select name, position, reason, record_key, headers, body, exact, number, rejected_ms
from inturn_source_rejection where source = ? and number in (select value from json_each(?)) order by number;

-- name: lock_source_rejections
select number from inturn_source_rejection
where source = ? and number in (select value from json_each(?)) order by number;

-- name: remove_source_rejections
delete from inturn_source_rejection where source = ? and number in (select value from json_each(?)) returning 1;

-- name: source_ids
select id, digest from inturn_source_id where source = ? and id in (select value from json_each(?));

-- name: add_source_ids
insert into inturn_source_id (source, id, digest)
select ?, json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(?);

-- name: add_source_groups
insert into inturn_source_group (source, group_name, name, position)
select ?, json_extract(value, '$[0]'), ?, json_extract(value, '$[1]') from json_each(?) where true
on conflict do nothing;

-- name: save_source_groups
insert or replace into inturn_source_group (source, group_name, name, position)
select ?, json_extract(value, '$[0]'), ?, json_extract(value, '$[1]') from json_each(?);

-- name: source_groups
select group_name, name, position from inturn_source_group
where source = ? and group_name in (select value from json_each(?));

-- name: source_moved_of_group
select group_name, name, position, home, home_position, queue_name, draft, number, moved_ms
from inturn_source_moved where source = ? and group_name = ? order by number;

-- name: remove_source_moved
delete from inturn_source_moved where number in (select value from json_each(?));

-- name: source_metrics
select source, shown, count(*) filter (where status = 'read'), count(*) filter (where status = 'unread'),
    count(*) filter (where status = 'finished'), count(*) filter (where status = 'paused'),
    count(*) filter (where status = 'refused'), sum(received), sum(rejected), sum(dropped),
    sum(moved), sum(lag),
    min(oldest_ms), max(moved_ms)
from (
    select p.source, case when count(*) over (partition by p.source) > ?2 then '*' else p.name end as shown,
        case when p.note is not null then 'refused' when p.is_paused then 'paused' when p.is_finished then 'finished'
            when p.owner is not null and p.until_ms > ?1 then 'read' else 'unread' end as status,
        p.received, p.rejected, p.dropped, p.lag, case when p.lag = 0 then null else p.record_ms end as oldest_ms, p.moved_ms,
        (select count(*) from inturn_source_moved m where m.source = p.source and m.name = p.name) as moved
    from inturn_source_partition p
) as each_partition
group by source, shown order by source, shown;

-- The kept log; see kept_log.py.

-- name: log_messages
select sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note, status
from inturn_message
where sequence_number > ?1 and sequence_number <= ?2 and (?4 is null or revision >= ?4) and (?5 is null or revision <= ?5)
order by sequence_number limit ?3;

-- name: log_of_group
select m.sequence_number, m.body, m.content, m.grp, m.revision, m.dedup_id, m.attributes, m.sent_ms, m.origin,
       m.came_from, m.note, m.status
from inturn_log_group g join inturn_message m on m.sequence_number = g.sequence_number
where g.queue = ?1 and g.grp = ?2 and g.sequence_number > ?3 and g.sequence_number <= ?4
    and (?6 is null or m.revision >= ?6) and (?7 is null or m.revision <= ?7)
order by g.sequence_number limit ?5;

-- name: log_newest_of_group
select sequence_number, body, content, grp, revision, dedup_id, attributes, sent_ms, origin, came_from, note, status
from inturn_message
where sequence_number > ?1 and sequence_number <= ?2 and grp = ?6
    and (?4 is null or revision >= ?4) and (?5 is null or revision <= ?5)
order by sequence_number limit ?3;

-- name: log_acknowledged
select sequence_number, sent_ms, grp from inturn_message indexed by inturn_acknowledged
where status = 1 and sequence_number > ? and sequence_number <= ? order by sequence_number limit ?;

-- name: measure_log
insert or ignore into inturn_log_block (queue, last, bytes)
select ?1, ?3, coalesce(sum(length(cast(body as blob))), 0) from inturn_message
where sequence_number > ?2 and sequence_number <= ?3;

-- name: index_log
insert or ignore into inturn_log_group (queue, grp, sequence_number)
select ?1, grp, sequence_number from inturn_message
where sequence_number > ?2 and sequence_number <= ?3 and grp is not null order by grp, sequence_number;

-- name: add_log_group
insert or ignore into inturn_log_group (queue, grp, sequence_number) values (?, ?, ?);

-- name: remove_log_group
delete from inturn_log_group where queue = ? and grp = ? and sequence_number = ?;

-- name: purge_log_groups
delete from inturn_log_group where queue = ?;

-- The erasure of a group; see store/sql/erasure.py.

-- name: erase_rejected
delete from inturn_rejected where pipeline = ? and grp = ?;

-- name: erase_session_state
update inturn_group_lock set session_state = null, note = case when note is not null then 'forgotten' end
where queue = ? and grp = ?;
