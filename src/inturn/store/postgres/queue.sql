-- What queues ask, by name.

-- name: now
select (extract(epoch from clock_timestamp()) * 1000)::bigint, value from inturn_meta where name = 'catalog';
