-- State for producers; see core/queue: numbering.py, writers.py and ready_groups.py.

create table inturn_revision (
    queue integer not null,
    grp   text    not null,
    last  integer not null, -- the last revision that the queue gave
    primary key (queue, grp)
) without rowid;
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
alter table inturn_dedup add column revision integer; -- of the first message
