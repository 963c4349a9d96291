-- Queues: the first version.

-- Counters for all queues: the version of these tables, the number of changes of queues, the number of queues created.
create table inturn_meta (name text primary key, value bigint) with (fillfactor = 50);
insert into inturn_meta (name, value) values ('version', 1), ('catalog', 1), ('queues', 0);

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
    queue bigint primary key,
    last  bigint not null
) with (fillfactor = 10);

-- A transaction locks the row if it receives, or changes which groups can be received.
create table inturn_desk (
    queue      bigint  primary key,
    tokens     bigint  not null, -- the last fencing token
    gone       bigint  not null, -- how many of the assigned numbers belong to no pending message
    listed     bigint  not null, -- up to here it was checked which groups can be received
    floor      bigint  not null, -- no message has a smaller number
    ready_from bigint  not null, -- no smaller number is in inturn_ready
    ran_out    boolean not null, -- whether the last receive has read the whole log
    due_ms     bigint            -- no lease, delay or lock ends earlier
) with (fillfactor = 10);

-- A queue's number is in the high bits of its sequence numbers, so its messages are stored together, in order.
create table inturn_message (
    sequence_number bigint   primary key,
    queue           bigint   not null,
    grp             text     collate "C",
    revision        bigint,
    dedup_id        text,
    body            bytea    not null, -- of text too: a PostgreSQL text holds no NUL
    content         smallint not null,
    attributes      text,
    sent_ms         bigint   not null,
    origin          bigint,
    came_from       text,
    note            text,
    done            smallint not null default 0 -- 1: acknowledged, and kept for readers; 2: deferred
);
create index inturn_pending on inturn_message (queue, grp, sequence_number) where done = 0;
create index inturn_done on inturn_message (sequence_number) where done = 1;
create index inturn_deferred on inturn_message (queue, sequence_number) where done = 2;
create index inturn_deferred_group on inturn_message (queue, grp, sequence_number) where done = 2;

-- The head of every listed group that can be received; a message without a group is the head of its own group.
create table inturn_ready (
    sequence_number bigint primary key,
    grp             text   collate "C"
);

-- The state of messages that were received or delayed; see DeliveryState in core/queue/delivery.py.
create table inturn_hold (
    sequence_number bigint  primary key,
    queue           bigint  not null,
    grp             text    collate "C",
    until_ms        bigint,
    token           bigint,
    attempts        bigint  not null,
    extended        boolean not null,
    since_ms        bigint  not null,
    first_ms        bigint,
    deferred        boolean not null
);
create index inturn_hold_group on inturn_hold (queue, grp) where grp is not null and not deferred;
create index inturn_hold_fetched on inturn_hold (queue, grp) where deferred and token is not null;
create index inturn_hold_due on inturn_hold (queue, until_ms) where until_ms is not null;

-- Settled groups, or messages without a group, that the next holder of the receiver lock checks.
create table inturn_touched (
    queue  bigint not null,
    grp    text   collate "C",
    number bigint,
    gone   bigint not null default 0, -- how many messages are no longer pending
    due_ms bigint                     -- when a message is to be checked
);
create index inturn_touched_of on inturn_touched (queue);

-- The lock of a group, and the reason why it is parked; see GroupLock in core/queue/sessions.py.
create table inturn_session (
    queue     bigint not null,
    grp       text   collate "C" not null,
    token     bigint,
    until_ms  bigint,
    since_ms  bigint not null default 0,
    note      text,
    parked_ms bigint,
    primary key (queue, grp)
);
create index inturn_session_due on inturn_session (queue, until_ms) where until_ms is not null;
create index inturn_session_parked on inturn_session (queue, parked_ms, grp) where note is not null;

-- The state that sessions store for a group. A writer takes a shared lock on the group's row above, so that the group
-- lock can be renewed meanwhile, but not taken over.
create table inturn_state (
    queue bigint not null,
    grp   text   collate "C" not null,
    state bytea  not null,
    primary key (queue, grp)
);

-- Deduplication ids of sent messages; see core/queue/deduplication.py.
create table inturn_dedup (
    queue           bigint not null,
    scope           text   collate "C" not null,
    id              text   collate "C" not null,
    sequence_number bigint not null,
    until_ms        bigint,
    primary key (queue, scope, id)
);
create index inturn_dedup_due on inturn_dedup (until_ms) where until_ms is not null;

-- Rows live only for moments, and scans must pass dead ones: autovacuum runs often and without a cost delay.
alter table inturn_message set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
alter table inturn_hold set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
alter table inturn_ready set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
alter table inturn_touched set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
