-- Kept logs; see core/queue/kept_log.py.

create table inturn_log_block (
    queue integer not null,
    last  integer not null, -- sequence number
    bytes integer not null,
    primary key (queue, last)
) without rowid;
-- The messages of measured blocks by group; some may have been removed.
create table inturn_log_group (
    queue           integer not null,
    grp             text    not null,
    sequence_number integer not null,
    primary key (queue, grp, sequence_number)
) without rowid;
-- For the erasure of a group; see erasure.py.
create index inturn_rejected_group on inturn_rejected (pipeline, grp);
create index inturn_decision_group on inturn_decision (pipeline, grp);
