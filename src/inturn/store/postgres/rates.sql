-- Statements of rate limits; see rates.py. The receiver lock is held.

-- name: rates
select grp, next_us from inturn_rate where queue = $1 and grp = any($2::text[]);

-- name: save_rates
insert into inturn_rate (queue, grp, next_us) select $1, * from unnest($2::text[], $3::bigint[])
on conflict (queue, grp) do update set next_us = excluded.next_us;

-- name: remove_expired_rates
delete from inturn_rate where queue = $1 and grp = any(array(
    select grp from inturn_rate where queue = $1 and next_us < $2 order by next_us limit $3
));
