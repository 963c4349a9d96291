-- The first version.

create table inturn_meta (name text primary key, value) without rowid;

create table inturn_queue (
    number     integer primary key,
    name       text    not null unique,
    settings   text    not null, -- JSON
    readers    text    not null, -- JSON: up to which sequence number each has read
    created_ms integer not null,
    depth      integer not null, -- messages that are not acknowledged
    last       integer not null, -- the last sequence number
    tokens     integer not null  -- the last fencing token
);

-- A queue's number is in the high bits of its sequence numbers, so its messages are stored together, in order.
create table inturn_message (
    sequence_number integer primary key,
    queue           integer not null,
    grp             text,
    revision        integer,
    dedup_id        text,
    body            blob    not null,
    content         integer not null,
    attributes      text,
    sent_ms         integer not null,
    origin          integer,
    came_from       text,
    note            text,
    done            integer not null default 0 -- acknowledged, and kept for readers
);
create index inturn_pending on inturn_message (queue, grp, sequence_number) where done = 0;
create index inturn_done on inturn_message (sequence_number) where done = 1;

-- The head of every group that can be received; a message without a group is the head of its own.
create table inturn_ready (
    sequence_number integer primary key,
    grp             text
);

-- The state of messages that were received or delayed; see DeliveryState in core/queue/delivery.py.
create table inturn_hold (
    sequence_number integer primary key,
    queue           integer not null,
    grp             text,
    until_ms        integer,
    token           integer,
    attempts        integer not null,
    extended        integer not null,
    since_ms        integer not null
);
create index inturn_hold_group on inturn_hold (queue, grp);
create index inturn_hold_due on inturn_hold (queue, until_ms) where until_ms is not null;

-- Deduplication ids of sent messages; see core/queue/deduplication.py.
create table inturn_dedup (
    queue           integer not null,
    scope           text    not null,
    id              text    not null,
    sequence_number integer not null,
    until_ms        integer,
    primary key (queue, scope, id)
) without rowid;
create index inturn_dedup_due on inturn_dedup (until_ms) where until_ms is not null;

-- Idempotency keys, see core/idempotency_keys.py.
create table inturn_key (
    space    text not null,
    key      text not null,
    record   text not null, -- JSON
    until_ms integer,
    primary key (space, key)
) without rowid;
create index inturn_key_due on inturn_key (until_ms) where until_ms is not null;

insert into inturn_meta (name, value) values ('version', 1);
