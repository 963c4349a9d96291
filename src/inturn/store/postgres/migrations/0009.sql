-- What is remembered for ever of groups with many messages, beside what is kept with the group. A worker of the version
-- before, which would not look here, stops at such a group: see Place in worker/codec.py.

create table inturn_mark (
    pipeline bigint not null,
    grp      text   collate "C" not null,
    mark     bytea  not null, -- by which a message is known again
    digest   bytea  not null, -- its first bytes
    turn     bigint not null,
    primary key (pipeline, grp, mark)
);

-- Of a group that holds much, the message that waits longest.
create index inturn_held_since on inturn_held (pipeline, grp, since_us, epoch, turn, id);
