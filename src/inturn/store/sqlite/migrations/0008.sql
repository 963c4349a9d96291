-- The part of the ready queue with groups whose message was returned, and groups that became ready after them; see
-- core/queue/ready_groups.py. All others are in inturn_ready, where their sequence numbers are their places.

create table inturn_line (
    place           integer not null,
    turn            integer not null,
    sequence_number integer not null,
    grp             text,
    primary key (place, turn, sequence_number)
) without rowid;
create unique index inturn_line_head on inturn_line (sequence_number);

-- The last place of a group whose message was returned.
alter table inturn_queue add column back_place integer not null default 0;
alter table inturn_queue add column back_turn integer not null default 0;
