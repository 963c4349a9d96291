-- The tables of a database. Times end in _ms or _us, since 1970; a `grp` is the name of a message group, null without
-- one, or its short form; see names.py and texts.py. A later change of these tables is a step of its own; see
-- store/sql/steps.py.
--
-- Some tables have rows that live only for moments, and scans must pass dead ones: there autovacuum runs often and
-- without a cost delay. Rows that are changed all the time have free space in their page, and are found by a key that
-- only grows: of all versions of such a row, the live one is the last in the index. Dead rows are kept while another
-- transaction is open: as many as there were changes since it began.

-- --- The database ---

-- Numbers of the whole database, by name: its format (version), the format that a server must know to use it
-- (readable_from), the number of changes of queues (catalog), the number of queues created (queues), the number of
-- changes of inturn_server_value (server_values), the time of the last write by a server (written_ms).
create table inturn_meta (name text primary key, value bigint) with (fillfactor = 50);
insert into inturn_meta (name, value) values ('catalog', 1), ('queues', 0);
-- The identity of the database: random, created with it, and kept by dumps; message ids and receipt handles contain it.
insert into inturn_meta (name, value)
select 'lineage_' || part, ('x' || left(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint
from unnest(array['high', 'low']) part;

-- Names of groups and ids that are too long for an index; other tables contain their short form, see names.py.
create table inturn_name (
    short text collate "C" primary key,
    name  text not null -- the name itself
);

-- --- Queues ---

create table inturn_queue (
    number     bigint primary key,
    name       text   not null unique,
    settings   text   not null, -- JSON
    readers    text   not null, -- JSON: up to which sequence number each has read
    created_ms bigint not null
);

-- The last sequence number. A sender locks the row until its transaction has ended, so no number is visible before a
-- smaller one. The row is narrow, and its page has free space, since every send writes it.
create table inturn_numbering (
    queue bigint not null,
    last  bigint not null,
    primary key (queue, last)
) with (fillfactor = 10);

-- The incarnation in which each number of a queue was assigned; see core/queue/incarnation.py.
create table inturn_incarnation (
    queue      bigint not null,
    after      bigint not null, -- the last sequence number before it
    id         text   collate "C" not null,
    created_ms bigint not null,
    primary key (queue, after)
);

-- Rate limits: the earliest time of the next message, by queue and group; see core/rate.py.
create table inturn_rate (
    queue   bigint not null,
    grp     text   collate "C" not null, -- the start of its SHA-256; empty: all messages of the queue
    next_us bigint not null,
    primary key (queue, grp)
);
create index inturn_rate_due on inturn_rate (queue, next_us);

-- --- Producers; see core/queue: deduplication.py, numbering.py, writers.py and ready_groups.py ---

-- Deduplication ids of sent messages.
create table inturn_dedup (
    queue           bigint not null,
    scope           text   collate "C" not null,
    id              text   collate "C" not null,
    sequence_number bigint not null,
    until_ms        bigint,
    revision        bigint, -- of the first message
    primary key (queue, scope, id)
);
create index inturn_dedup_due on inturn_dedup (until_ms) where until_ms is not null;

-- The last revision that the queue assigned in a group.
create table inturn_revision (
    queue bigint not null,
    grp   text   collate "C" not null,
    last  bigint not null,
    primary key (queue, grp)
) with (fillfactor = 70);

-- The producer that may send to a group.
create table inturn_writer (
    queue    bigint not null,
    grp      text   collate "C" not null,
    name     text   not null,
    epoch    bigint not null,
    until_ms bigint not null,
    since_ms bigint not null,
    primary key (queue, grp)
);

create table inturn_priority (
    queue    bigint  not null,
    grp      text    collate "C" not null,
    priority integer not null,
    primary key (queue, grp)
);
-- The planner cannot use this instead of the index by which one group is found.
create index inturn_priority_highest on inturn_priority ((queue + 0), priority);

-- --- Messages ---

-- A queue's number is in the high bits of its sequence numbers, so its messages are stored together, in order.
create table inturn_message (
    sequence_number bigint   primary key,
    queue           bigint   not null,
    grp             text     collate "C",
    revision        bigint,
    dedup_id        text,
    body            bytea    not null, -- of text too: a PostgreSQL text holds no NUL
    content         smallint not null, -- the kind of the body; see core/queue/messages.py
    attributes      text,              -- JSON
    sent_ms         bigint   not null,
    origin          bigint,            -- the sequence number that it was first sent with, if it was moved
    came_from       text,              -- the queue that it was moved from
    note            text,              -- why it was moved
    status          smallint not null default 0 -- 1: acknowledged, and kept for readers; 2: deferred
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off);
-- The pending messages of a group: no other index is used for these, whatever the size of the table; see queue.sql.
create index inturn_pending_place on inturn_message (queue, grp, (sequence_number + 0)) where status = 0;
create index inturn_acknowledged on inturn_message (sequence_number) where status = 1;
create index inturn_log_group on inturn_message (queue, grp, sequence_number) where status = 1;
create index inturn_deferred on inturn_message (queue, sequence_number) where status = 2;
create index inturn_deferred_group on inturn_message (queue, grp, sequence_number) where status = 2;

-- --- Ready groups and the receiver lock; see core/queue/ready_groups.py and receiver_lock.py ---

-- A transaction locks the row if it receives, or changes which groups can be received.
create table inturn_receiver (
    queue              bigint  not null,
    version            bigint  not null default 0, -- number of changes of the row
    last_token         bigint  not null, -- the last fencing token
    removed_count      bigint  not null, -- how many of the assigned numbers belong to no pending message
    listed_to          bigint  not null, -- up to here it was checked which groups can be received
    messages_from      bigint  not null, -- no message has a smaller number
    ready_from         bigint  not null, -- no smaller number is in inturn_ready
    is_list_complete   boolean not null, -- whether the last receive has read the whole log
    due_ms             bigint,           -- no lease, delay or lock ends earlier
    -- The last place of a group whose message was returned.
    last_requeue_place bigint  not null default 0,
    last_requeue_rank  bigint  not null default 0,
    -- The place and the head after which all groups with a place are: null until a message is returned for the first
    -- time.
    ready_after_place  bigint,
    ready_after_rank   bigint,
    ready_after_number bigint,
    seen_xid           bigint,   -- all rows of older transactions in inturn_recheck were read,
    seen_except        bigint[], -- except for these transactions, which had not ended
    primary key (queue, version)
) with (fillfactor = 10);

-- The head of every listed group that can be received; a message without a group is the head of its own group.
create table inturn_ready (
    sequence_number bigint primary key,
    grp             text   collate "C",
    -- The place of a group whose message was returned, that became ready after such a group, or that has a priority;
    -- null: its sequence number.
    place           bigint,
    rank            bigint not null default 0
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off);
create index inturn_ready_place on inturn_ready (place, rank, sequence_number) where place is not null;

-- Settled groups, or messages without a group, that the next holder of the receiver lock checks.
create table inturn_recheck (
    queue           bigint not null,
    grp             text   collate "C",
    sequence_number bigint,
    removed_count   bigint not null default 0, -- how many messages are no longer pending
    due_ms          bigint,                    -- when a message is to be checked
    -- The order of the settlements; for a message returned by a user, the time and the last sequence number at that
    -- time.
    id              bigint generated by default as identity,
    returned_ms     bigint,
    place           bigint,
    xid             bigint not null default pg_current_xact_id()::text::bigint -- the transaction that has added it
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off);
create index inturn_recheck_xid on inturn_recheck (queue, xid);

-- --- Receives and leases ---

-- The state of messages that were received, delayed or deferred; see DeliveryState in core/queue/delivery.py.
create table inturn_hold (
    sequence_number bigint  primary key,
    queue           bigint  not null,
    grp             text    collate "C",
    until_ms        bigint, -- the end of the lease or the delay
    token           bigint, -- of the lease; null: the message is not leased
    attempts        bigint  not null,
    since_ms        bigint  not null,
    first_ms        bigint, -- when the message was received for the first time
    deferred        boolean not null, -- a deferred message does not block its group
    lapsed          boolean not null default false -- whether a lease of it expired; see rule 11 there
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off);
-- The holds of a group, as inturn_pending_place its messages. No held message is before the first one of its group.
create index inturn_hold_place on inturn_hold (queue, grp, (sequence_number + 0))
    where grp is not null and not deferred;
create index inturn_hold_fetched on inturn_hold (queue, grp) where deferred and token is not null;
create index inturn_hold_due on inturn_hold (queue, until_ms) where until_ms is not null;

-- Receives that can be repeated by their attempt id, at any server of the database.
create table inturn_attempt (
    queue    bigint not null,
    id       text   collate "C" not null,
    until_ms bigint not null,
    leases   text   not null, -- JSON, see store/servers.py
    primary key (queue, id)
);
create index inturn_attempt_due on inturn_attempt (until_ms);

-- --- Groups: locks, parks and session states; see GroupLock in core/queue/sessions.py ---

create table inturn_group_lock (
    queue     bigint not null,
    grp       text   collate "C" not null,
    token     bigint, -- of the lock; null: the group is not locked
    until_ms  bigint, -- the end of the lock
    since_ms  bigint not null,
    note      text,   -- why the group is parked; null: it is not
    parked_ms bigint,
    primary key (queue, grp)
);
create index inturn_group_lock_due on inturn_group_lock (queue, until_ms) where until_ms is not null;
create index inturn_group_lock_parked on inturn_group_lock (queue, parked_ms, grp) where note is not null;

-- The state that sessions store for a group. A writer takes a shared lock on the group's row above, so that the group
-- lock can be renewed meanwhile, but not taken over.
create table inturn_session_state (
    queue bigint not null,
    grp   text   collate "C" not null,
    state bytea  not null,
    primary key (queue, grp)
);

-- --- Kept logs; see core/queue/kept_log.py ---

create table inturn_log_block (
    queue bigint not null,
    last  bigint not null, -- sequence number
    bytes bigint not null,
    primary key (queue, last)
);

-- --- Idempotency keys; see core/idempotency_keys.py ---

-- Each later lock has a greater token.
create sequence inturn_key_token;
create table inturn_key (
    space    text   collate "C" not null,
    key      text   collate "C" not null,
    record   text,  -- JSON; null only in the transaction that takes the key
    until_ms bigint,
    primary key (space, key)
) with (fillfactor = 80);
create index inturn_key_due on inturn_key (until_ms) where until_ms is not null;

-- --- Pipelines that run in processes; see store/records.py. texts.py defines how the user's texts are stored ---

create table inturn_pipeline (
    number bigint generated always as identity primary key,
    name   text   collate "C" not null unique,
    about  text   not null -- JSON
);

-- Counts of messages by result, and of outputs: each count is the sum of several rows, so that concurrent transactions
-- seldom wait for each other.
create table inturn_pipeline_count (
    pipeline bigint   not null,
    slot     smallint not null,
    kind     text     collate "C" not null,
    reason   text     collate "C" not null,
    count    bigint   not null,
    primary key (pipeline, slot, kind, reason)
) with (fillfactor = 20);

create table inturn_group (
    pipeline       bigint not null,
    grp            text   collate "C" not null,
    version        bigint not null, -- number of changes of the row
    status         text   not null,
    timeline       bytea  not null, -- MessagePack
    state          bytea  not null, -- MessagePack
    held           bigint not null, -- number of held messages
    oldest_us      bigint,          -- since when the longest-waiting one is held
    due_us         bigint,          -- when the group no longer waits
    begun_tasks    bigint not null default 0, -- tasks that may have killed a process; see store/pipeline_store.py
    begun_until_ms bigint not null default 0,
    primary key (pipeline, grp)
) with (fillfactor = 80);
create index inturn_group_due on inturn_group (pipeline, due_us) where due_us is not null;
create index inturn_group_parked on inturn_group (pipeline, grp) where status <> 'open';

create table inturn_held (
    pipeline bigint not null,
    grp      text   collate "C" not null,
    epoch    bigint not null,
    position bigint not null,
    tie      text   collate "C" not null, -- the order of messages of one position; see tie() in core/pipeline/order.py
    id       text   collate "C" not null,
    since_us bigint not null,
    digest   bytea  not null,
    content  text   not null, -- JSON
    primary key (pipeline, grp, epoch, position, tie, id)
);
create index inturn_held_position on inturn_held (pipeline, grp, position);
create index inturn_held_id on inturn_held (pipeline, grp, id) where id <> '';
-- Finds the longest-waiting message of a group with many held messages.
create index inturn_held_since on inturn_held (pipeline, grp, since_us, epoch, position, tie, id);

-- Marks of applied messages of groups with many messages, in addition to those in the group's record.
create table inturn_mark (
    pipeline bigint not null,
    grp      text   collate "C" not null,
    mark     bytea  not null, -- identifies an applied message
    digest   bytea  not null, -- its first bytes
    position bigint not null,
    primary key (pipeline, grp, mark)
);

create table inturn_decision (
    pipeline bigint not null,
    name     text   collate "C" not null,
    grp      text   collate "C" not null,
    decision text   not null, -- JSON
    verdict  text,            -- null: not applied yet
    primary key (pipeline, name)
);
create index inturn_decision_new on inturn_decision (pipeline, name) where verdict is null;
create index inturn_decision_group on inturn_decision (pipeline, grp); -- for the erasure of a group; see erasure.py

-- --- Results of pipelines ---

-- The numbers of a group's outputs follow the order of their production: the producing transaction locks the group's
-- row.
create sequence inturn_output_number;
create table inturn_output (
    pipeline     bigint not null,
    number       bigint not null default nextval('inturn_output_number'),
    grp          text   collate "C" not null,
    epoch        bigint,
    revision     bigint,
    id           text,
    output_index bigint not null, -- index among the outputs of its message
    effect_id    text   not null,
    output       text   not null, -- JSON
    trace        text,            -- W3C traceparent
    created_ms   bigint not null,
    primary key (pipeline, number)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off);
create index inturn_output_group on inturn_output (pipeline, grp, number);

-- Groups with undelivered outputs. Only delivering transactions lock these rows; a transaction that produces outputs
-- adds a note to inturn_outbox_note, and does not wait.
create sequence inturn_claim_token;
create table inturn_outbox (
    pipeline  bigint not null,
    grp       text   collate "C" not null,
    until_ms  bigint not null, -- when they may be delivered
    token     bigint not null, -- of the delivery that has begun; 0: none
    attempts  bigint not null, -- failed ones
    error     text,
    lapses    bigint not null default 0, -- deliveries that may have killed a process; see store/pipeline_store.py
    lapsed_to bigint not null default 0, -- the last output whose delivery had begun
    primary key (pipeline, grp)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
create index inturn_outbox_failing on inturn_outbox (pipeline, grp) where attempts > 0;
-- The planner cannot use these instead of the indexes by which one group or one note is found.
create index inturn_outbox_next on inturn_outbox ((pipeline + 0), until_ms);
create index inturn_outbox_suspect on inturn_outbox ((pipeline + 0), until_ms) where token <> 0 or lapses > 1;

create table inturn_outbox_note (
    pipeline   bigint not null,
    number     bigint generated always as identity,
    grp        text   collate "C" not null,
    created_ms bigint not null,
    primary key (pipeline, number)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = off);
create index inturn_outbox_note_group on inturn_outbox_note ((pipeline + 0), grp);

create table inturn_rejected (
    number   bigint generated always as identity primary key,
    pipeline bigint not null,
    grp      text   collate "C", -- the name itself, which may be long
    reason   text   not null,
    detail   text   not null,
    message  text   not null,
    at_ms    bigint not null
);
create index inturn_rejected_number on inturn_rejected (pipeline, number);
create index inturn_rejected_group on inturn_rejected (pipeline, md5(grp)); -- for the erasure of a group, see erasure.py

-- Return the JSON form of MessagePack, as inturn/json_form.py does. In a text NUL, which jsonb lacks, becomes U+FFFD.
-- It is one function, so that it does not depend on the search_path of the caller.
create function inturn_json(packed bytea) returns jsonb language plpgsql immutable strict parallel safe as $$
declare
    data constant bytea := packed || ''::bytea; -- decompressed once
    pos int := 1;
    head int;
    width int;          -- number of bytes of a number, or of a length
    raw bytea;
    number bigint;      -- without a sign, unless it has 8 bytes
    size int;           -- the length of a text or of bytes; the number of entries of a map or an array
    bits int;           -- of the fraction of a float
    exponent int;
    real float8;
    nanos bigint;
    item text;
    pieces text[] := '{}';
    depth int := 0;     -- number of arrays and maps that are open, and of each:
    is_map boolean[];
    wanted int[];       -- number of its values, with its keys
    done int[];         -- how many of them are read
    first int[];        -- its first piece
begin
    loop
        if depth > 0 and done[depth] > 0 then
            pieces := array_append(pieces, case when is_map[depth] and done[depth] % 2 = 1 then ':' else ',' end);
        end if;
        head := get_byte(data, pos - 1);
        pos := pos + 1;
        number := null;
        if head between 196 and 223 then
            width := case
                when head in (196, 199, 204, 208, 217) then 1
                when head in (197, 200, 205, 209, 218, 220, 222) then 2
                when head in (198, 201, 202, 206, 210, 219, 221, 223) then 4
                when head in (203, 207, 211) then 8
                else 0 end;
            raw := substring(data from pos for width);
            number := ('x' || lpad(encode(raw, 'hex'), 16, '0'))::bit(64)::bigint;
            pos := pos + width;
        end if;
        size := case
            when head < 128 or head between 192 and 195 or head between 202 and 211 or head > 223 then null
            when head < 160 then head & 15
            when head < 192 then head & 31
            when head between 212 and 216 then 1 << (head - 212)
            else number end;
        if head between 128 and 159 or head between 220 and 223 then
            depth := depth + 1;
            is_map[depth] := head < 144 or head between 222 and 223;
            wanted[depth] := case when is_map[depth] then 2 * size else size end;
            done[depth] := 0;
            first[depth] := cardinality(pieces) + 1;
            pieces := array_append(pieces, case when is_map[depth] then '{' else '[' end);
        else
            if size is not null then
                if head between 199 and 201 or head between 212 and 216 then
                    pos := pos + 1; -- the type of an extension
                end if;
                raw := substring(data from pos for size);
                pos := pos + size;
            end if;
            if head < 128 then
                item := head;
            elsif head > 223 then
                item := head - 256;
            elsif head < 192 or head > 216 then
                while position('\x00'::bytea in raw) > 0 loop
                    raw := overlay(raw placing '\xefbfbd'::bytea from position('\x00'::bytea in raw) for 1);
                end loop;
                item := to_json(convert_from(raw, 'UTF8'));
            elsif head < 196 then
                item := case head when 192 then 'null' when 194 then 'false' else 'true' end;
            elsif head < 199 then
                item := to_json(translate(encode(raw, 'base64'), E'\n', ''));
            elsif head in (202, 203) then
                bits := case width when 4 then 23 else 52 end;
                exponent := (number >> bits) & (case width when 4 then 255 else 2047 end);
                real := (number & ((1::bigint << bits) - 1)) / power(2::float8, bits);
                real := case exponent
                    when case width when 4 then 255 else 2047 end then null -- NaN and infinity
                    when 0 then real * power(2::float8, case width when 4 then -126 else -1022 end)
                    else (1 + real) * power(2::float8, exponent - case width when 4 then 127 else 1023 end) end;
                item := coalesce(to_json(case when get_byte(raw, 0) > 127 then -real else real end)::text, 'null');
            elsif head = 207 and number < 0 then
                item := number + 18446744073709551616;
            elsif head between 208 and 210 and get_byte(raw, 0) > 127 then
                item := number - (1::bigint << (8 * width));
            elsif head between 204 and 211 then
                item := number;
            else -- an instant, of 4, 8 or 12 bytes
                nanos := case size when 12 then ('x' || encode(substring(raw for 4), 'hex'))::bit(32)::bigint else 0 end;
                number := ('x' || lpad(encode(substring(raw from greatest(size - 7, 1)), 'hex'), 16, '0'))::bit(64)::bigint;
                if size = 8 then
                    nanos := (number >> 34) & ((1 << 30) - 1);
                    number := number & ((1::bigint << 34) - 1);
                end if;
                item := to_char(timestamp 'epoch' + number * interval '1 second', 'YYYY-MM-DD"T"HH24:MI:SS');
                item := to_json(item || case when nanos > 0 then '.' || lpad((nanos / 1000)::text, 6, '0') else '' end || 'Z');
            end if;
            if depth > 0 then
                if is_map[depth] and done[depth] % 2 = 0 and left(item, 1) <> '"' then
                    item := to_json(item);
                end if;
                done[depth] := done[depth] + 1;
            end if;
            pieces := array_append(pieces, item);
        end if;
        while depth > 0 and done[depth] = wanted[depth] loop
            pieces := array_append(pieces, case when is_map[depth] then '}' else ']' end);
            depth := depth - 1;
            if depth > 0 then
                if is_map[depth] and done[depth] % 2 = 0 then -- it is a key
                    item := to_json(array_to_string(pieces[first[depth + 1]:], ''));
                    pieces := array_append(pieces[:first[depth + 1] - 1], item);
                end if;
                done[depth] := done[depth] + 1;
            end if;
        end loop;
        exit when depth = 0;
    end loop;
    return array_to_string(pieces, '')::jsonb;
end $$;

-- Views for users, for joins with other tables.
create view inturn_states as
select p.name as pipeline, g.grp as "group", g.status, g.held, inturn_json(g.state) as state
from inturn_group g join inturn_pipeline p on p.number = g.pipeline;

-- As json, which unlike jsonb can contain NUL.
create view inturn_outputs as
select p.name as pipeline, o.number, o.grp as "group", o.epoch, o.revision, o.id, o.output_index as index, o.effect_id,
    o.output::json as output
from inturn_output o join inturn_pipeline p on p.number = o.pipeline;

create view inturn_rejections as
select p.name as pipeline, r.number, r.grp as "group", r.reason, r.detail, r.message, r.at_ms
from inturn_rejected r join inturn_pipeline p on p.number = r.pipeline;

-- --- Sources; see core/source_shares.py and store/sources.py ---

-- The position and the reader of each partition; see SourcePartition.
create table inturn_source_partition (
    source        text    collate "C",
    name          text    collate "C",
    position      text,                           -- JSON; null: at the start
    incarnation   text    not null default '',
    owner         text,
    epoch         bigint  not null default 0,
    until_ms      bigint  not null default 0,     -- the end of the owner's lease
    is_paused     boolean not null default false,
    received      bigint  not null default 0,
    rejected      bigint  not null default 0,
    moved_ms      bigint  not null default 0,     -- when the position last changed
    note          text,                           -- why it is not read
    lag           bigint,
    record_ms     bigint,                         -- the time of the last committed record
    is_finished   boolean not null default false, -- read to its end, as a file is; not read again until it changes
    dropped       bigint  not null default 0,
    position_form text    not null default '',    -- by which a position that a user enters is checked; empty: any
    removed_ms    bigint,                         -- when it was found removed, after it was read to its end
    primary key (source, name)
);

create table inturn_source_instance (
    source   text   collate "C",
    instance text,
    until_ms bigint not null,
    error    text   not null, -- the error that it waits out; empty: none
    primary key (source, instance)
);

-- Rejected records; a source's bound is by count and size. See ingest/rejections.py.
create table inturn_source_rejection (
    number      bigint generated always as identity primary key,
    source      text   collate "C" not null,
    name        text   not null, -- of the partition
    position    text   not null, -- JSON
    reason      text   not null,
    record_key  bytea,
    headers     text   not null, -- JSON, for display
    body        bytea,
    rejected_ms bigint not null,
    exact       bytea  not null, -- the original headers and time, as MessagePack
    size        bigint not null generated always as (
        coalesce(octet_length(record_key), 0) + octet_length(headers) + coalesce(octet_length(body), 0)
    ) stored
);
create index inturn_source_rejection_number on inturn_source_rejection (source, number, size);

-- The ids of records of sources that have no positions, such as a queue of a broker.
create table inturn_source_id (
    source text collate "C",
    id     text collate "C",
    digest text not null, -- of the message
    primary key (source, id)
);

-- The partition of each group.
create table inturn_source_group (
    source     text collate "C",
    group_name text collate "C",
    name       text not null, -- of the partition
    position   text not null, -- JSON, of the first record there
    primary key (source, group_name)
);

-- Messages of groups that moved to another partition, which are not sent yet.
create table inturn_source_moved (
    number        bigint generated always as identity primary key,
    source        text   collate "C" not null,
    group_name    text   collate "C" not null,
    name          text   not null, -- of the partition
    position      text   not null, -- JSON
    home          text   not null, -- the partition of the group
    home_position text   not null, -- JSON
    queue_name    text   not null,
    draft         bytea  not null, -- MessagePack
    moved_ms      bigint not null
);
create index inturn_source_moved_group on inturn_source_moved (source, group_name, number);
create index inturn_source_moved_number on inturn_source_moved (source, number);
create index inturn_source_moved_partition on inturn_source_moved (source, name);

-- --- Servers: what those of one database share ---

-- Access keys, with their secrets, and settings: JSON, by name.
create table inturn_server_value (
    name  text collate "C" primary key,
    value text not null
);

-- Signatures that are not accepted a second time.
create table inturn_signature (
    signature bytea  primary key,
    until_s   bigint not null
);
create index inturn_signature_due on inturn_signature (until_s);
