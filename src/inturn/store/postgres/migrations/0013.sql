-- Rate limits: the earliest time of the next message, by queue and group; see core/rate.py.

create table inturn_rate (
    queue   bigint not null,
    grp     text   collate "C" not null, -- the start of its SHA-256; empty: all messages of the queue
    next_us bigint not null,
    primary key (queue, grp)
);
create index inturn_rate_over on inturn_rate (queue, next_us);
