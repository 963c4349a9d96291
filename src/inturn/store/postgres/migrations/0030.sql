-- Kept logs; see core/queue/kept_log.py.

create table inturn_log_block (
    queue bigint not null,
    last  bigint not null, -- sequence number
    bytes bigint not null,
    primary key (queue, last)
);
create index inturn_log_group on inturn_message (queue, grp, sequence_number) where done = 1;
-- For the erasure of a group; see erasure.py.
create index inturn_rejected_group on inturn_rejected (pipeline, md5(grp)); -- names are whole here, and may be long
create index inturn_decision_group on inturn_decision (pipeline, grp);
