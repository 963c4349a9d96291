-- Messages of the same turn have an order among themselves, which is not that of their ids; see tie() in
-- core/pipeline/order.py. Messages that are already held keep the order of their ids, before new ones.

create table inturn_held_now (
    pipeline integer not null,
    grp      text    not null,
    epoch    integer not null,
    turn     integer not null,
    tie      text    not null,
    id       text    not null,
    since_us integer not null,
    digest   blob    not null,
    content  text    not null, -- JSON
    primary key (pipeline, grp, epoch, turn, tie, id)
) without rowid;
insert into inturn_held_now select pipeline, grp, epoch, turn, '', id, since_us, digest, content from inturn_held;
drop table inturn_held;
alter table inturn_held_now rename to inturn_held;
create index inturn_held_turn on inturn_held (pipeline, grp, turn);
create index inturn_held_id on inturn_held (pipeline, grp, id) where id <> '';
create index inturn_held_since on inturn_held (pipeline, grp, since_us, epoch, turn, tie, id);
