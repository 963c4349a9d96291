-- Queues, keys, producers, the log and servers: the statements that both databases have alike; see statements.py.

-- name: incarnation
select id from inturn_incarnation where queue = $1 and after < $2 order by after desc limit 1;

-- name: trim_incarnations
-- The same as trim() in core/queue/incarnation.py.
delete from inturn_incarnation where queue = $1
and after < (select i.after from inturn_incarnation i where i.queue = $1 order by i.after desc limit 1 offset $3)
and after < (select max(i.after) from inturn_incarnation i where i.queue = $1 and i.after < $2);

-- name: remove_incarnations
delete from inturn_incarnation where queue = $1;

-- name: log_place_time
select sequence_number, sent_ms from inturn_message
where sequence_number > $1 and sequence_number <= $2 order by sequence_number limit 1;

-- name: log_measured
select last from inturn_log_block where queue = $1 order by last desc limit 1;

-- name: log_blocks
select last, bytes from inturn_log_block where queue = $1 order by last;

-- name: remove_log_blocks
delete from inturn_log_block
where queue = $1 and last <= $2
    and last < (select b.last from inturn_log_block b where b.queue = $1 order by b.last desc limit 1);

-- name: purge_log_blocks
delete from inturn_log_block where queue = $1;

-- name: key
select record from inturn_key where space = $1 and key = $2;

-- name: remove_key
delete from inturn_key where space = $1 and key = $2;

-- name: log_place
select sequence_number from inturn_message
where sequence_number > $1 and sequence_number <= $2 order by sequence_number limit 1 offset $3;

-- name: remove_revisions
delete from inturn_revision where queue = $1;

-- name: remove_writers
delete from inturn_writer where queue = $1;

-- name: remove_priorities
delete from inturn_priority where queue = $1;

-- name: remove_queue
delete from inturn_queue where number = $1;

-- name: purge_dedup
delete from inturn_dedup where queue = $1;

-- name: parked_count
select count(*) from inturn_group_lock where queue = $1 and note is not null;

-- name: parked
select grp, note, parked_ms from inturn_group_lock
where queue = $1 and note is not null and (parked_ms, grp) > ($2, $3) order by parked_ms, grp limit $4;

-- name: remove_group_locks
delete from inturn_group_lock where queue = $1;

-- name: deferred
select count(*) from inturn_message where queue = $1 and status = 2;

-- name: remove_rates
delete from inturn_rate where queue = $1;

-- name: group_status_counts
select status, count(*), cast(sum(held) as bigint), min(oldest_us) from (
    select status, held, oldest_us from inturn_group where pipeline = $1 and status <> 'open' limit $2
) g group by status;

-- name: outbox_metrics
select (select count(*) from (select 1 from inturn_output where pipeline = $1 limit $2) o),
    (select created_ms from inturn_output where pipeline = $1 order by number limit 1),
    (select count(*) from (select 1 from inturn_outbox where pipeline = $1 and attempts > 0 limit $2) b);

-- name: attempt
select leases from inturn_attempt where queue = $1 and id = $2 and until_ms > $3;

-- name: save_attempt_leases
update inturn_attempt set leases = $3 where queue = $1 and id = $2;
