-- Receives that can be repeated by their attempt id, at any server of the file.

create table inturn_attempt (
    queue    integer not null,
    id       text    not null,
    until_ms integer not null,
    leases   text    not null, -- JSON, see store/servers.py
    primary key (queue, id)
) without rowid;
create index inturn_attempt_due on inturn_attempt (until_ms);
