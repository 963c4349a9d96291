-- Sources: the position and the reader of each partition, and the rejected records.

create table inturn_source_partition (
    source      text collate "C",
    name        text collate "C",
    position    text, -- JSON
    incarnation text    not null default '',
    owner       text,
    epoch       bigint  not null default 0,
    until_ms    bigint  not null default 0,
    is_paused   boolean not null default false,
    received    bigint  not null default 0,
    rejected    bigint  not null default 0,
    moved_ms    bigint  not null default 0,
    note        text,
    primary key (source, name)
);
create table inturn_source_instance (
    source   text collate "C",
    instance text,
    until_ms bigint not null,
    primary key (source, instance)
);
create table inturn_source_rejection (
    number      bigint generated always as identity primary key,
    source      text collate "C" not null,
    name        text   not null,
    position    text   not null, -- JSON
    reason      text   not null,
    record_key  bytea,
    headers     text   not null, -- JSON
    body        bytea,
    rejected_ms bigint not null
);
create index inturn_source_rejection_of on inturn_source_rejection (source, number);
