-- Lapsed messages; see rule 11 of core/queue/delivery.py.

alter table inturn_hold add column lapsed boolean not null default false;
