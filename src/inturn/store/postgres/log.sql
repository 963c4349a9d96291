-- Statements of connections that only read the log; see log.py. Numbers may have any type.

-- name: log_size
select sum(octet_length(body)) from (
    select body from inturn_message
    where sequence_number > $1 and sequence_number <= $2 order by sequence_number limit $3
) part;

-- name: log
select sequence_number, grp, revision, dedup_id, body, content, attributes, sent_ms from inturn_message
where sequence_number > $1::bigint and sequence_number <= $2::bigint order by sequence_number limit $3::bigint;

-- name: log_bounded
select sequence_number, grp, revision, dedup_id, body, content, attributes, sent_ms
from (
    select *, sum(octet_length(body)) over (order by sequence_number rows between unbounded preceding and 1 preceding)
        as before
    from inturn_message
    where sequence_number > $1::bigint and sequence_number <= $2::bigint order by sequence_number limit $3::bigint
) measured
where before is null or before < $4::bigint;
