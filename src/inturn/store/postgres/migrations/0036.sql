-- Rejected records can be resent and purged; a source's bound is by count and size. See ingest/rejections.py.

alter table inturn_source_rejection add column exact bytea; -- the original headers and time, as MessagePack
alter table inturn_source_rejection add column size bigint not null generated always as (
    coalesce(octet_length(record_key), 0) + octet_length(headers) + coalesce(octet_length(body), 0)
) stored;
create index inturn_source_rejection_sizes on inturn_source_rejection (source, number, size);
alter table inturn_source_partition add column dropped bigint not null default 0;
alter table inturn_source_instance add column trouble text not null default '';
