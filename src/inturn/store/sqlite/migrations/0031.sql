-- Lapsed messages; see rule 11 of core/queue/delivery.py.

alter table inturn_hold add column lapsed integer not null default 0;
alter table inturn_lease add column lapsed integer not null default 0; -- 0: its messages were never received before
