-- When a message was received for the first time.

alter table inturn_hold add column first_ms integer;

-- A message without a group blocks no other message.

drop index inturn_hold_group;
create index inturn_hold_group on inturn_hold (queue, grp) where grp is not null;
