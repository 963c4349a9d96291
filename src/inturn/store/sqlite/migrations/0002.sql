-- When a message was received for the first time.

alter table inturn_hold add column first_ms integer;
