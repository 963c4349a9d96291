-- Turns without messages, and deliveries, that may have killed a process; see store/pipeline_store.py.

alter table inturn_group add column begun bigint not null default 0, add column begun_until_ms bigint not null default 0;
alter table inturn_outbox add column lapses bigint not null default 0,
    add column lapsed_to bigint not null default 0; -- the last output whose delivery had begun
create index inturn_outbox_suspect on inturn_outbox ((pipeline + 0), until_ms) where token <> 0 or lapses > 1;
