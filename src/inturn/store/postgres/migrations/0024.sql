-- Lag and age of sources, and the groups that moved to another partition.

alter table inturn_source_partition add column lag bigint, add column record_ms bigint;
create table inturn_source_group (
    source     text collate "C",
    group_name text collate "C",
    name       text not null, -- of the partition
    position   text not null, -- JSON, of the first record there
    primary key (source, group_name)
);
create table inturn_source_moved (
    number        bigint generated always as identity primary key,
    source        text collate "C" not null,
    group_name    text collate "C" not null,
    name          text   not null,
    position      text   not null, -- JSON
    home          text   not null, -- the partition of the group
    home_position text   not null, -- JSON
    queue_name    text   not null,
    draft         bytea  not null, -- MessagePack
    moved_ms      bigint not null
);
create index inturn_source_moved_of on inturn_source_moved (source, group_name, number);
create index inturn_source_moved_by_number on inturn_source_moved (source, number);
create index inturn_source_moved_from on inturn_source_moved (source, name);
