-- What is looked up is found from its newest end, past rows that are dead and that nobody may remove while another
-- transaction stays open: there are as many of these as there were changes since that began.

-- A key that only grows: of the versions of a queue's row the last one in the index is the row.
alter table inturn_numbering drop constraint inturn_numbering_pkey, add primary key (queue, last);
alter table inturn_desk
    add column version   bigint not null default 0, -- how often the row was changed
    add column drawn_to  bigint,   -- all that older transactions have left in inturn_touched was drawn,
    add column drawn_but bigint[], -- but for these, which had not ended
    drop constraint inturn_desk_pkey,
    add primary key (queue, version);

-- Which transaction has left it.
alter table inturn_touched add column xact bigint not null default pg_current_xact_id()::text::bigint;
create index inturn_touched_by on inturn_touched (queue, xact);
drop index inturn_touched_of;

-- The messages of a group, and what is known of them: no other index is used for these, whatever the tables hold; see
-- queue.sql. No message that is held is before the first of its group.
create index inturn_pending_place on inturn_message (queue, grp, (sequence_number + 0)) where done = 0;
create index inturn_hold_place on inturn_hold (queue, grp, (sequence_number + 0)) where grp is not null and not deferred;
drop index inturn_pending;
drop index inturn_hold_group;

-- Of pipelines: nor can these stand in for those by which one group or one note is found.
create index inturn_outbox_next on inturn_outbox ((pipeline + 0), until_ms);
create index inturn_posted_by on inturn_posted ((pipeline + 0), grp);
drop index inturn_outbox_due;
drop index inturn_posted_group;
