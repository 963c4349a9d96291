-- Lag and age of sources, and the groups that moved to another partition.

alter table inturn_source_partition add column lag integer;
alter table inturn_source_partition add column record_ms integer;
create table inturn_source_group (
    source     text not null,
    group_name text not null,
    name       text not null, -- of the partition
    position   text not null, -- JSON, of the first record there
    primary key (source, group_name)
) without rowid;
create table inturn_source_moved (
    number        integer primary key autoincrement,
    source        text    not null,
    group_name    text    not null,
    name          text    not null,
    position      text    not null, -- JSON
    home          text    not null, -- the partition of the group
    home_position text    not null, -- JSON
    queue_name    text    not null,
    draft         blob    not null, -- MessagePack
    moved_ms      integer not null
);
create index inturn_source_moved_of on inturn_source_moved (source, group_name, number);
create index inturn_source_moved_by_number on inturn_source_moved (source, number);
create index inturn_source_moved_from on inturn_source_moved (source, name);
