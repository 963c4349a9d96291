-- The line of ready groups, see core/queue/ready_groups.py: those that have been given back, and those that became ready behind them.
-- All others are in inturn_ready, where their sequence numbers are their places.

create table inturn_line (
    place           integer not null,
    turn            integer not null,
    sequence_number integer not null,
    grp             text,
    primary key (place, turn, sequence_number)
) without rowid;
create unique index inturn_line_head on inturn_line (sequence_number);

-- The last place of a group that was given back.
alter table inturn_queue add column back_place integer not null default 0;
alter table inturn_queue add column back_turn integer not null default 0;
