-- The lock of a group, the reason why it is parked, and its session state; see GroupLock in core/queue/sessions.py.

create table inturn_session (
    queue     integer not null,
    grp       text    not null,
    token     integer,
    until_ms  integer,
    since_ms  integer not null default 0,
    note      text,
    parked_ms integer,
    state     blob,
    primary key (queue, grp)
);
create index inturn_session_closed on inturn_session (queue, grp) where token is not null or note is not null;
create index inturn_session_due on inturn_session (queue, until_ms) where until_ms is not null;
create index inturn_session_parked on inturn_session (queue, parked_ms, grp) where note is not null;

-- A deferred message does not block its group: its `done` is 2, and its hold does not count for the group.

alter table inturn_hold add column deferred integer not null default 0;
drop index inturn_hold_group;
create index inturn_hold_group on inturn_hold (queue, grp) where grp is not null and deferred = 0;
create index inturn_hold_fetched on inturn_hold (queue, grp) where deferred = 1 and token is not null;
create index inturn_deferred on inturn_message (queue, sequence_number) where done = 2;
create index inturn_deferred_group on inturn_message (queue, grp, sequence_number) where done = 2;
