-- Statements of idempotency keys; see keys.py.

-- name: take_key
with free as materialized (
    select pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' ' || $1::text || ' ' || $2::text, 0)) as is_ours
), added as (
    insert into inturn_key (space, key) select $1, $2 from free
    where is_ours and not exists (select from inturn_key where space = $1 and key = $2) on conflict do nothing
)
select is_ours from free;

-- name: lock_key
select record from inturn_key where space = $1 and key = $2 for update;

-- name: lock_free_key
select record from inturn_key where space = $1 and key = $2 for update skip locked;

-- name: lock_key_tokens
select pg_advisory_xact_lock(hashtextextended(current_schema() || ' inturn_key_token', 0));

-- name: key_token
select setval('inturn_key_token', greatest(nextval('inturn_key_token'), $1));

-- name: save_key
update inturn_key set record = $3, until_ms = $4 where space = $1 and key = $2;

-- name: remove_expired_keys
delete from inturn_key where ctid = any(array(
    select ctid from inturn_key where until_ms <= $1 order by until_ms limit $2 for update skip locked
));
