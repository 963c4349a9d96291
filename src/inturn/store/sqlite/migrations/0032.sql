-- Turns without messages, and deliveries, of which a process may have died; see store/pipeline_store.py.

alter table inturn_group add column begun integer not null default 0;
alter table inturn_group add column begun_until_ms integer not null default 0;
alter table inturn_outbox add column lapses integer not null default 0;
create index inturn_outbox_claimed on inturn_outbox (pipeline, until_ms) where token <> 0;
