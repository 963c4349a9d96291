-- Marks of applied messages of groups with many messages, in addition to those in the group's record. A worker of the
-- previous version, which does not read them, stops at such a group: see StoredPlace in results/place.py.

create table inturn_mark (
    pipeline bigint not null,
    grp      text   collate "C" not null,
    mark     bytea  not null, -- identifies an applied message
    digest   bytea  not null, -- its first bytes
    turn     bigint not null,
    primary key (pipeline, grp, mark)
);

-- Finds the longest-waiting message of a group with many held messages.
create index inturn_held_since on inturn_held (pipeline, grp, since_us, epoch, turn, id);
