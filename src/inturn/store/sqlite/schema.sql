-- The tables of a file. Times end in _ms or _us, since 1970; a `grp` is the name of a message group, null without one.
-- A later change of these tables is a step of its own; see store/sql/steps.py.

-- --- The database ---

-- Values of the whole file, by name: its format (version), its identity, the number of queues created, the last token
-- of idempotency keys, the time when old keys were last removed, the time of the last write by a server.
create table inturn_meta (name text primary key, value) without rowid;
-- Created with the file, and shared by its copies; message ids and receipt handles contain it.
insert into inturn_meta (name, value) values ('identity', lower(hex(randomblob(16))));

-- --- Queues ---

create table inturn_queue (
    number             integer primary key,
    name               text    not null unique,
    settings           text    not null, -- JSON
    readers            text    not null, -- JSON: up to which sequence number each has read
    created_ms         integer not null,
    depth              integer not null, -- messages up to `counted_to` that are not acknowledged
    counted_to         integer not null, -- a sequence number; later messages are not counted in this row yet
    last_token         integer not null, -- the last fencing token
    indexed_to         integer not null, -- the last sequence number that is in inturn_pending
    -- The last place of a group whose message was returned; see core/queue/ready_groups.py.
    last_requeue_place integer not null default 0,
    last_requeue_rank  integer not null default 0
);

-- The incarnation in which each number of a queue was assigned; see core/queue/incarnation.py.
create table inturn_incarnation (
    queue      integer not null,
    after      integer not null, -- the last sequence number before it
    id         text    not null,
    created_ms integer not null,
    note       text,             -- why a person made it
    primary key (queue, after)
) without rowid;

-- Rate limits: the earliest time of the next message, by queue and group; see core/rate.py.
create table inturn_rate (
    queue   integer not null,
    grp     text    not null, -- the start of its SHA-256; empty: all messages of the queue
    next_us integer not null,
    primary key (queue, grp)
) without rowid;
create index inturn_rate_due on inturn_rate (queue, next_us);

-- --- Producers; see core/queue: deduplication.py, numbering.py, writers.py and ready_groups.py ---

-- Deduplication ids of sent messages. Expired ones are removed by a sweep through the table, which costs a send less
-- than an index by time.
create table inturn_dedup (
    queue           integer not null,
    scope           text    not null,
    id              text    not null,
    sequence_number integer not null,
    until_ms        integer,
    revision        integer, -- of the first message
    primary key (queue, scope, id)
) without rowid;

-- The last revision that the queue assigned in a group.
create table inturn_revision (
    queue integer not null,
    grp   text    not null,
    last  integer not null,
    primary key (queue, grp)
) without rowid;

-- The producer that may send to a group.
create table inturn_writer (
    queue    integer not null,
    grp      text    not null,
    name     text    not null,
    epoch    integer not null,
    until_ms integer not null,
    since_ms integer not null,
    primary key (queue, grp)
) without rowid;

create table inturn_priority (
    queue    integer not null,
    grp      text    not null,
    priority integer not null,
    primary key (queue, grp)
) without rowid;

-- --- Messages ---

-- A queue's number is in the high bits of its sequence numbers, so its messages are stored together, in order.
create table inturn_message (
    sequence_number integer primary key,
    queue           integer not null,
    grp             text,
    revision        integer,
    dedup_id        text,
    body            blob    not null,
    content         integer not null, -- the kind of the body; see core/queue/messages.py
    attributes      text,             -- JSON
    sent_ms         integer not null,
    origin          integer,          -- the sequence number that it was first sent with, if it was moved
    came_from       text,             -- the queue that it was moved from
    note            text,             -- why it was moved
    status          integer not null default 0 -- 1: acknowledged, and kept for readers; 2: deferred
);
create index inturn_acknowledged on inturn_message (sequence_number) where status = 1;
create index inturn_deferred on inturn_message (queue, sequence_number) where status = 2;
create index inturn_deferred_group on inturn_message (queue, grp, sequence_number) where status = 2;

-- The pending messages of a group, in order; the newest ones are not in it yet, see group_index.py.
create table inturn_pending (
    queue           integer not null,
    grp             text    not null,
    sequence_number integer not null,
    primary key (queue, grp, sequence_number)
) without rowid;

-- --- Ready groups; see core/queue/ready_groups.py ---

-- The head of every group that can be received; a message without a group is the head of its own. The sequence number
-- is the place in the ready queue.
create table inturn_ready (
    sequence_number integer primary key,
    grp             text
);

-- The part of the ready queue with other places: groups whose message was returned, that became ready after such a
-- group, or that have a priority.
create table inturn_ready_place (
    place           integer not null,
    rank            integer not null,
    sequence_number integer not null,
    grp             text,
    primary key (place, rank, sequence_number)
) without rowid;
create unique index inturn_ready_place_head on inturn_ready_place (sequence_number);

-- --- Receives and leases ---

-- The state of messages that were received, delayed or deferred; see DeliveryState in core/queue/delivery.py.
create table inturn_hold (
    sequence_number integer primary key,
    queue           integer not null,
    grp             text,
    until_ms        integer, -- the end of the lease or the delay
    token           integer, -- of the lease; null: the message is not leased
    attempts        integer not null,
    since_ms        integer not null,
    first_ms        integer, -- when the message was received for the first time
    deferred        integer not null, -- 1: deferred; it does not block its group
    lapsed          integer not null  -- whether a lease of it expired; see rule 11 there
);
create index inturn_hold_group on inturn_hold (queue, grp) where grp is not null and deferred = 0;
create index inturn_hold_fetched on inturn_hold (queue, grp) where deferred = 1 and token is not null;
create index inturn_hold_due on inturn_hold (queue, until_ms) where until_ms is not null;

-- Messages of one group that were received together for the first time: one row replaces the rows of inturn_hold for
-- each of them; see leases.py.
create table inturn_lease (
    queue    integer not null,
    token    integer not null,
    grp      text    not null,
    numbers  text    not null, -- JSON: their sequence numbers
    messages integer not null, -- how many
    until_ms integer not null,
    attempts integer not null,
    since_ms integer not null,
    first_ms integer not null,
    deferred integer not null,
    lapsed   integer not null, -- 0, since its messages were never received before
    primary key (queue, token, grp)
) without rowid;
create index inturn_lease_group on inturn_lease (queue, grp);
create index inturn_lease_due on inturn_lease (queue, until_ms);

-- Receives that can be repeated by their attempt id, at any server of the file.
create table inturn_attempt (
    queue    integer not null,
    id       text    not null,
    until_ms integer not null,
    leases   text    not null, -- JSON, see store/servers.py
    primary key (queue, id)
) without rowid;
create index inturn_attempt_due on inturn_attempt (until_ms);

-- --- Groups: locks, parks and session states; see GroupLock in core/queue/sessions.py ---

create table inturn_group_lock (
    queue         integer not null,
    grp           text    not null,
    token         integer,          -- of the lock; null: the group is not locked
    until_ms      integer,          -- the end of the lock
    since_ms      integer not null,
    note          text,             -- why the group is parked; null: it is not
    parked_ms     integer,
    session_state blob,             -- what sessions store for the group
    primary key (queue, grp)
);
create index inturn_group_lock_closed on inturn_group_lock (queue, grp) where token is not null or note is not null;
create index inturn_group_lock_due on inturn_group_lock (queue, until_ms) where until_ms is not null;
create index inturn_group_lock_parked on inturn_group_lock (queue, parked_ms, grp) where note is not null;

-- --- Kept logs; see core/queue/kept_log.py ---

create table inturn_log_block (
    queue integer not null,
    last  integer not null, -- sequence number
    bytes integer not null,
    primary key (queue, last)
) without rowid;

-- The messages of measured blocks by group; some may have been removed.
create table inturn_log_group (
    queue           integer not null,
    grp             text    not null,
    sequence_number integer not null,
    primary key (queue, grp, sequence_number)
) without rowid;

-- --- Idempotency keys; see core/idempotency_keys.py ---

create table inturn_key (
    space    text not null,
    key      text not null,
    record   text not null, -- JSON
    until_ms integer,
    primary key (space, key)
) without rowid;
create index inturn_key_due on inturn_key (until_ms) where until_ms is not null;

-- --- Pipelines that run in a process; see store/records.py ---

create table inturn_pipeline (
    number      integer primary key,
    name        text    not null unique,
    about       text    not null, -- JSON
    counts      text    not null, -- JSON
    last_output integer not null, -- the number of the last output
    last_token  integer not null  -- the last fencing token of the outbox
);

create table inturn_group (
    pipeline       integer not null,
    grp            text    not null,
    version        integer not null, -- number of changes of the row
    status         text    not null,
    held           integer not null, -- number of held messages
    oldest_us      integer,          -- since when the longest-waiting one is held
    due_us         integer,          -- when the group no longer waits
    begun_tasks    integer not null default 0, -- tasks that may have killed a process; see store/pipeline_store.py
    begun_until_ms integer not null default 0,
    -- The long ones last, so that the others are read without them.
    timeline       blob    not null, -- MessagePack
    state          blob    not null, -- MessagePack
    state_json     text    not null, -- for the view: json_form.of_message_pack(state)
    primary key (pipeline, grp)
) without rowid;
create index inturn_group_due on inturn_group (pipeline, due_us) where due_us is not null;
create index inturn_group_parked on inturn_group (pipeline, grp) where status <> 'open';

create table inturn_held (
    pipeline integer not null,
    grp      text    not null,
    epoch    integer not null,
    position integer not null,
    tie      text    not null, -- the order among messages of the same position; see tie() in core/pipeline/order.py
    id       text    not null,
    since_us integer not null,
    digest   blob    not null,
    content  text    not null, -- JSON
    primary key (pipeline, grp, epoch, position, tie, id)
) without rowid;
create index inturn_held_position on inturn_held (pipeline, grp, position);
create index inturn_held_id on inturn_held (pipeline, grp, id) where id <> '';
-- Finds the longest-waiting message of a group with many held messages.
create index inturn_held_since on inturn_held (pipeline, grp, since_us, epoch, position, tie, id);

-- Marks of applied messages of groups with many messages, in addition to those in the group's record.
create table inturn_mark (
    pipeline integer not null,
    grp      text    not null,
    mark     blob    not null, -- identifies an applied message
    digest   blob    not null, -- its first bytes
    position integer not null,
    primary key (pipeline, grp, mark)
) without rowid;

create table inturn_decision (
    pipeline integer not null,
    name     text    not null,
    grp      text    not null,
    decision text    not null, -- JSON
    verdict  text,             -- null: not applied yet
    primary key (pipeline, name)
) without rowid;
create index inturn_decision_new on inturn_decision (pipeline, name) where verdict is null;
create index inturn_decision_group on inturn_decision (pipeline, grp); -- for the erasure of a group; see erasure.py

-- --- Results of pipelines ---

create table inturn_output (
    pipeline     integer not null,
    number       integer not null,
    grp          text    not null,
    epoch        integer,
    revision     integer,
    id           text,
    output_index integer not null, -- index among the outputs of its message
    effect_id    text    not null,
    output       text    not null, -- JSON
    trace        text,             -- W3C traceparent
    created_ms   integer not null,
    primary key (pipeline, number)
) without rowid;
create index inturn_output_group on inturn_output (pipeline, grp, number);

-- Groups with undelivered outputs.
create table inturn_outbox (
    pipeline  integer not null,
    grp       text    not null,
    until_ms  integer not null, -- when they may be delivered
    token     integer not null, -- of the delivery that has begun; 0: none
    attempts  integer not null, -- failed ones
    error     text,
    lapses    integer not null default 0, -- deliveries that may have killed a process; see store/pipeline_store.py
    lapsed_to integer not null default 0, -- the last output whose delivery had begun
    primary key (pipeline, grp)
) without rowid;
create index inturn_outbox_due on inturn_outbox (pipeline, until_ms);
create index inturn_outbox_failing on inturn_outbox (pipeline, grp) where attempts > 0;
create index inturn_outbox_suspect on inturn_outbox (pipeline, until_ms) where token <> 0 or lapses > 1;

create table inturn_rejected (
    number   integer primary key,
    pipeline integer not null,
    grp      text,
    reason   text    not null,
    detail   text    not null,
    message  text    not null,
    at_ms    integer not null
);
create index inturn_rejected_number on inturn_rejected (pipeline, number);
create index inturn_rejected_group on inturn_rejected (pipeline, grp); -- for the erasure of a group; see erasure.py

-- Views for users, for joins with other tables.
create view inturn_states as
select p.name as pipeline, g.grp as "group", g.status as status, g.held as held, g.state_json as state
from inturn_group g join inturn_pipeline p on p.number = g.pipeline;

create view inturn_outputs as
select p.name as pipeline, o.number as number, o.grp as "group", o.epoch as epoch, o.revision as revision, o.id as id,
    o.output_index as "index", o.effect_id as effect_id, o.output as output
from inturn_output o join inturn_pipeline p on p.number = o.pipeline;

create view inturn_rejections as
select p.name as pipeline, r.number as number, r.grp as "group", r.reason as reason, r.detail as detail,
    r.message as message, r.at_ms as at_ms
from inturn_rejected r join inturn_pipeline p on p.number = r.pipeline;

-- --- Sources; see core/source_shares.py and store/sources.py ---

-- The position and the reader of each partition; see SourcePartition.
create table inturn_source_partition (
    source        text    not null,
    name          text    not null,
    position      text,                       -- JSON; null: at the start
    incarnation   text    not null default '',
    owner         text,
    epoch         integer not null default 0,
    until_ms      integer not null default 0, -- the end of the owner's lease
    is_paused     integer not null default 0,
    received      integer not null default 0,
    rejected      integer not null default 0,
    moved_ms      integer not null default 0, -- when the position last changed
    note          text,                       -- why it is not read
    lag           integer,
    record_ms     integer,                    -- the time of the last committed record
    is_finished   integer not null default 0, -- read to its end, as a file is; not read again until it changes
    dropped       integer not null default 0,
    position_form text    not null default '', -- by which a position that a user enters is checked; empty: any
    removed_ms    integer,                    -- when it was found removed, after it was read to its end
    primary key (source, name)
) without rowid;

create table inturn_source_instance (
    source   text    not null,
    instance text    not null,
    until_ms integer not null,
    error    text    not null, -- the error that it waits out; empty: none
    primary key (source, instance)
) without rowid;

-- Rejected records. Their numbers are never assigned again, since records can be resent and purged; a source's bound is
-- by count and size. See ingest/rejections.py.
create table inturn_source_rejection (
    number      integer primary key autoincrement,
    source      text    not null,
    name        text    not null, -- of the partition
    position    text    not null, -- JSON
    reason      text    not null,
    record_key  blob,
    headers     text    not null, -- JSON, for display
    body        blob,
    rejected_ms integer not null,
    exact       blob    not null, -- the original headers and time, as MessagePack
    size        integer not null generated always as (
        coalesce(length(record_key), 0) + length(cast(headers as blob)) + coalesce(length(body), 0)
    ) stored
);
create index inturn_source_rejection_number on inturn_source_rejection (source, number, size);

-- The ids of records of sources that have no positions, such as a queue of a broker.
create table inturn_source_id (
    source text not null,
    id     text not null,
    digest text not null, -- of the message
    primary key (source, id)
) without rowid;

-- The partition of each group.
create table inturn_source_group (
    source     text not null,
    group_name text not null,
    name       text not null, -- of the partition
    position   text not null, -- JSON, of the first record there
    primary key (source, group_name)
) without rowid;

-- Messages of groups that moved to another partition, which are not sent yet.
create table inturn_source_moved (
    number        integer primary key autoincrement,
    source        text    not null,
    group_name    text    not null,
    name          text    not null, -- of the partition
    position      text    not null, -- JSON
    home          text    not null, -- the partition of the group
    home_position text    not null, -- JSON
    queue_name    text    not null,
    draft         blob    not null, -- MessagePack
    moved_ms      integer not null
);
create index inturn_source_moved_group on inturn_source_moved (source, group_name, number);
create index inturn_source_moved_number on inturn_source_moved (source, number);
create index inturn_source_moved_partition on inturn_source_moved (source, name);
