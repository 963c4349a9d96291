-- Idempotency keys; see core/idempotency_keys.py. Each later lock has a greater token.

create sequence inturn_key_token;
create table inturn_key (
    space    text   collate "C" not null,
    key      text   collate "C" not null,
    record   text,  -- JSON; null only in the transaction that takes the key
    until_ms bigint,
    primary key (space, key)
) with (fillfactor = 80);
create index inturn_key_due on inturn_key (until_ms) where until_ms is not null;
