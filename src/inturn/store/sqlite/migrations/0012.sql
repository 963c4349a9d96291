-- What is remembered for ever of groups with many messages, beside what is kept with the group.

create table inturn_mark (
    pipeline integer not null,
    grp      text    not null,
    mark     blob    not null, -- by which a message is known again
    digest   blob    not null, -- its first bytes
    turn     integer not null,
    primary key (pipeline, grp, mark)
) without rowid;

-- Of a group that holds much, the message that waits longest.
create index inturn_held_since on inturn_held (pipeline, grp, since_us, epoch, turn, id);
