-- Look-ups begin at the newest row, so that they do not pass dead rows. Dead rows are kept while another transaction is
-- open: as many as there were changes since it began.

-- A key that only grows: of all versions of a queue's row, the live one is the last in the index.
alter table inturn_numbering drop constraint inturn_numbering_pkey, add primary key (queue, last);
alter table inturn_desk
    add column version   bigint not null default 0, -- number of changes of the row
    add column drawn_to  bigint,   -- all rows of older transactions in inturn_touched were read,
    add column drawn_but bigint[], -- except for these transactions, which had not ended
    drop constraint inturn_desk_pkey,
    add primary key (queue, version);

-- The transaction that has added it.
alter table inturn_touched add column xact bigint not null default pg_current_xact_id()::text::bigint;
create index inturn_touched_by on inturn_touched (queue, xact);
drop index inturn_touched_of;

-- The messages of a group, and their holds: no other index is used for these, whatever the size of the tables; see
-- queue.sql. No held message is before the first one of its group.
create index inturn_pending_place on inturn_message (queue, grp, (sequence_number + 0)) where done = 0;
create index inturn_hold_place on inturn_hold (queue, grp, (sequence_number + 0)) where grp is not null and not deferred;
drop index inturn_pending;
drop index inturn_hold_group;

-- For pipelines: the planner cannot use these instead of the indexes by which one group or one note is found.
create index inturn_outbox_next on inturn_outbox ((pipeline + 0), until_ms);
create index inturn_posted_by on inturn_posted ((pipeline + 0), grp);
drop index inturn_outbox_due;
drop index inturn_posted_group;
