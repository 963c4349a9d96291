-- Sources: the position and the reader of each partition, and the rejected records.

create table inturn_source_partition (
    source      text    not null,
    name        text    not null,
    position    text, -- JSON
    incarnation text    not null default '',
    owner       text,
    epoch       integer not null default 0,
    until_ms    integer not null default 0,
    is_paused   integer not null default 0,
    received    integer not null default 0,
    rejected    integer not null default 0,
    moved_ms    integer not null default 0,
    note        text,
    primary key (source, name)
) without rowid;
create table inturn_source_instance (
    source   text    not null,
    instance text    not null,
    until_ms integer not null,
    primary key (source, instance)
) without rowid;
create table inturn_source_rejection (
    number      integer primary key,
    source      text    not null,
    name        text    not null,
    position    text    not null, -- JSON
    reason      text    not null,
    record_key  blob,
    headers     text    not null, -- JSON
    body        blob,
    rejected_ms integer not null
);
create index inturn_source_rejection_of on inturn_source_rejection (source, number);
