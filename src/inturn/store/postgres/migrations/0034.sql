-- Messages of the same turn have an order among themselves, which is not that of their ids; see tie() in
-- core/pipeline/order.py. Messages that are already held keep the order of their ids, before new ones. Servers of the
-- previous version need the primary key; a later version makes this index that instead.

alter table inturn_held add column tie text collate "C" not null default '';
create index inturn_held_spot on inturn_held (pipeline, grp, epoch, turn, tie, id);
