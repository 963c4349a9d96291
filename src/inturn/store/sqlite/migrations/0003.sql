-- Pipelines that run in a process, see store/records.py.

create table inturn_pipeline (
    number  integer primary key,
    name    text    not null unique,
    about   text    not null, -- JSON
    counts  text    not null, -- JSON
    outputs integer not null, -- the number of the last output
    tokens  integer not null  -- the last fencing token of the outbox
);

create table inturn_group (
    pipeline  integer not null,
    grp       text    not null,
    version   integer not null,
    status    text    not null,
    timeline  blob    not null, -- MessagePack
    state     blob    not null, -- MessagePack
    held      integer not null,
    oldest_us integer,
    due_us    integer,
    primary key (pipeline, grp)
) without rowid;
create index inturn_group_due on inturn_group (pipeline, due_us) where due_us is not null;
create index inturn_group_parked on inturn_group (pipeline, grp) where status <> 'open';

create table inturn_held (
    pipeline integer not null,
    grp      text    not null,
    epoch    integer not null,
    turn     integer not null,
    id       text    not null,
    since_us integer not null,
    digest   blob    not null,
    content  text    not null, -- JSON
    primary key (pipeline, grp, epoch, turn, id)
) without rowid;
create index inturn_held_turn on inturn_held (pipeline, grp, turn);
create index inturn_held_id on inturn_held (pipeline, grp, id) where id <> '';

create table inturn_output (
    pipeline  integer not null,
    number    integer not null,
    grp       text    not null,
    epoch     integer,
    revision  integer,
    id        text,
    at        integer not null,
    effect_id text    not null,
    output    text    not null, -- JSON
    primary key (pipeline, number)
) without rowid;
create index inturn_output_group on inturn_output (pipeline, grp, number);

-- Groups with undelivered outputs.
create table inturn_outbox (
    pipeline integer not null,
    grp      text    not null,
    until_ms integer not null,
    token    integer not null,
    attempts integer not null,
    error    text,
    primary key (pipeline, grp)
) without rowid;
create index inturn_outbox_due on inturn_outbox (pipeline, until_ms);
create index inturn_outbox_failing on inturn_outbox (pipeline, grp) where attempts > 0;

create table inturn_rejected (
    number   integer primary key,
    pipeline integer not null,
    grp      text,
    reason   text    not null,
    detail   text    not null,
    message  text    not null,
    at_ms    integer not null
);
create index inturn_rejected_of on inturn_rejected (pipeline, number);

create table inturn_decision (
    pipeline integer not null,
    name     text    not null,
    grp      text    not null,
    decision text    not null, -- JSON
    verdict  text,
    primary key (pipeline, name)
) without rowid;
create index inturn_decision_new on inturn_decision (pipeline, name) where verdict is null;
