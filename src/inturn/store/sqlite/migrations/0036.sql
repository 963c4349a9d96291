-- Rejected records can be resent and purged: their numbers are never assigned again, and a source's bound is by count and
-- size. See ingest/rejections.py.

create table inturn_source_rejection_now (
    number      integer primary key autoincrement,
    source      text    not null,
    name        text    not null,
    position    text    not null, -- JSON
    reason      text    not null,
    record_key  blob,
    headers     text    not null, -- JSON
    body        blob,
    rejected_ms integer not null,
    exact       blob, -- headers and time as they came, as MessagePack
    size        integer not null generated always as (
        coalesce(length(record_key), 0) + length(cast(headers as blob)) + coalesce(length(body), 0)
    ) stored
);
insert into inturn_source_rejection_now
    (number, source, name, position, reason, record_key, headers, body, rejected_ms)
select number, source, name, position, reason, record_key, headers, body, rejected_ms from inturn_source_rejection;
drop table inturn_source_rejection;
alter table inturn_source_rejection_now rename to inturn_source_rejection;
create index inturn_source_rejection_of on inturn_source_rejection (source, number, size);
alter table inturn_source_partition add column dropped integer not null default 0;
alter table inturn_source_instance add column trouble text not null default '';
