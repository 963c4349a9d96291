-- Pipelines that run in processes; see store/records.py. texts.py defines how the user's texts are stored.

create table inturn_pipeline (
    number bigint generated always as identity primary key,
    name   text   collate "C" not null unique,
    about  text   not null -- JSON
);

-- Counts of messages by result, and of outputs: each count is the sum of several rows, so that concurrent transactions
-- seldom wait for each other.
create table inturn_tally (
    pipeline bigint   not null,
    slot     smallint not null,
    kind     text     collate "C" not null,
    reason   text     collate "C" not null,
    count    bigint   not null,
    primary key (pipeline, slot, kind, reason)
) with (fillfactor = 20);

create table inturn_group (
    pipeline  bigint not null,
    grp       text   collate "C" not null,
    version   bigint not null,
    status    text   not null,
    timeline  bytea  not null, -- MessagePack
    state     bytea  not null, -- MessagePack
    held      bigint not null,
    oldest_us bigint,
    due_us    bigint,
    primary key (pipeline, grp)
) with (fillfactor = 80);
create index inturn_group_due on inturn_group (pipeline, due_us) where due_us is not null;
create index inturn_group_parked on inturn_group (pipeline, grp) where status <> 'open';

create table inturn_held (
    pipeline bigint not null,
    grp      text   collate "C" not null,
    epoch    bigint not null,
    turn     bigint not null,
    id       text   collate "C" not null,
    since_us bigint not null,
    digest   bytea  not null,
    content  text   not null, -- JSON
    primary key (pipeline, grp, epoch, turn, id)
);
create index inturn_held_turn on inturn_held (pipeline, grp, turn);
create index inturn_held_id on inturn_held (pipeline, grp, id) where id <> '';

-- The numbers of a group's outputs follow the order of their production: the producing transaction locks the group's row.
create sequence inturn_output_number;
create table inturn_output (
    pipeline  bigint not null,
    number    bigint not null default nextval('inturn_output_number'),
    grp       text   collate "C" not null,
    epoch     bigint,
    revision  bigint,
    id        text,
    at        bigint not null,
    effect_id text   not null,
    output    text   not null, -- JSON
    primary key (pipeline, number)
);
create index inturn_output_group on inturn_output (pipeline, grp, number);

-- Groups with undelivered outputs. Only delivering transactions lock these rows; a transaction that produces outputs adds
-- a note, and does not wait.
create sequence inturn_claim_token;
create table inturn_outbox (
    pipeline bigint not null,
    grp      text   collate "C" not null,
    until_ms bigint not null,
    token    bigint not null,
    attempts bigint not null,
    error    text,
    primary key (pipeline, grp)
) with (fillfactor = 50);
create index inturn_outbox_due on inturn_outbox (pipeline, until_ms);
create index inturn_outbox_failing on inturn_outbox (pipeline, grp) where attempts > 0;

create table inturn_posted (
    pipeline bigint not null,
    number   bigint generated always as identity,
    grp      text   collate "C" not null,
    at_ms    bigint not null,
    primary key (pipeline, number)
);
create index inturn_posted_group on inturn_posted (pipeline, grp);

create table inturn_rejected (
    number   bigint generated always as identity primary key,
    pipeline bigint not null,
    grp      text   collate "C",
    reason   text   not null,
    detail   text   not null,
    message  text   not null,
    at_ms    bigint not null
);
create index inturn_rejected_of on inturn_rejected (pipeline, number);

create table inturn_decision (
    pipeline bigint not null,
    name     text   collate "C" not null,
    grp      text   collate "C" not null,
    decision text   not null, -- JSON
    verdict  text,
    primary key (pipeline, name)
);
create index inturn_decision_new on inturn_decision (pipeline, name) where verdict is null;

alter table inturn_output set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
alter table inturn_outbox set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
alter table inturn_posted set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
