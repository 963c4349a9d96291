-- Messages of one group that were received together for the first time: one row replaces the rows of inturn_hold for
-- each of them; see leases.py.

create table inturn_lease (
    queue    integer not null,
    token    integer not null,
    grp      text    not null,
    numbers  text    not null, -- JSON: their sequence numbers
    messages integer not null, -- how many
    until_ms integer not null,
    attempts integer not null,
    extended integer not null,
    since_ms integer not null,
    first_ms integer not null,
    deferred integer not null,
    primary key (queue, token, grp)
) without rowid;
create index inturn_lease_group on inturn_lease (queue, grp);
create index inturn_lease_due on inturn_lease (queue, until_ms);
