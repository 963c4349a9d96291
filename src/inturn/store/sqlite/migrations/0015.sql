-- Rate limits: the earliest time of the next message, by queue and group; see core/rate.py.

create table inturn_rate (
    queue   integer not null,
    grp     text    not null, -- the start of its SHA-256; empty: all messages of the queue
    next_us integer not null,
    primary key (queue, grp)
) without rowid;
create index inturn_rate_over on inturn_rate (queue, next_us);
