-- Marks of applied messages of groups with many messages, in addition to those in the group's record.

create table inturn_mark (
    pipeline integer not null,
    grp      text    not null,
    mark     blob    not null, -- by which a message is known again
    digest   blob    not null, -- its first bytes
    turn     integer not null,
    primary key (pipeline, grp, mark)
) without rowid;

-- Finds the longest-waiting message of a group with many held messages.
create index inturn_held_since on inturn_held (pipeline, grp, since_us, epoch, turn, id);
