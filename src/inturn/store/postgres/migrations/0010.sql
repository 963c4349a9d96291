-- Which database this is: random, made with it, and kept by dumps; message ids and receipt handles differ by it.

insert into inturn_meta (name, value)
select 'lineage_' || part, ('x' || left(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint
from unnest(array['high', 'low']) part;
