-- The identity of the database: random, created with it, and kept by dumps; message ids and receipt handles contain it.

insert into inturn_meta (name, value)
select 'lineage_' || part, ('x' || left(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint
from unnest(array['high', 'low']) part;
