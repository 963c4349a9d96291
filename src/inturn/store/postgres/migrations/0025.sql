-- State for producers; see core/queue: numbering.py, writers.py and ready_groups.py.

create table inturn_revision (
    queue bigint not null,
    grp   text   collate "C" not null,
    last  bigint not null, -- the last revision that the queue assigned
    primary key (queue, grp)
) with (fillfactor = 70);
create table inturn_writer (
    queue    bigint not null,
    grp      text   collate "C" not null,
    name     text   not null,
    epoch    bigint not null,
    until_ms bigint not null,
    since_ms bigint not null,
    primary key (queue, grp)
);
create table inturn_priority (
    queue    bigint  not null,
    grp      text    collate "C" not null,
    priority integer not null,
    primary key (queue, grp)
);
-- The planner cannot use this instead of the index by which one group is found.
create index inturn_priority_highest on inturn_priority ((queue + 0), priority);
alter table inturn_dedup add column revision bigint; -- of the first message
