-- The pending messages of a group, in order; the newest ones are not in it yet, see group_index.py.

alter table inturn_queue add column indexed integer not null default 0; -- the last sequence number that is in it

drop index inturn_pending;
create table inturn_pending (
    queue           integer not null,
    grp             text    not null,
    sequence_number integer not null,
    primary key (queue, grp, sequence_number)
) without rowid;

insert into inturn_pending (queue, grp, sequence_number)
select queue, grp, sequence_number from inturn_message where done = 0 and grp is not null order by 1, 2, 3;

update inturn_queue set indexed = max(last, coalesce((
    select max(sequence_number) from inturn_message where sequence_number <= (number + 1) << 44
), 0));
