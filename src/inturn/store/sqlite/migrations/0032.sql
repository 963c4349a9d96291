-- Turns without messages, and deliveries, that may have killed a process; see store/pipeline_store.py.

alter table inturn_group add column begun integer not null default 0;
alter table inturn_group add column begun_until_ms integer not null default 0;
alter table inturn_outbox add column lapses integer not null default 0;
alter table inturn_outbox add column lapsed_to integer not null default 0; -- the last output that was in hand
create index inturn_outbox_suspect on inturn_outbox (pipeline, until_ms) where token <> 0 or lapses > 1;
