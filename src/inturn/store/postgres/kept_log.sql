-- The kept log; see kept_log.py.

-- part: log_columns
m.sequence_number, m.body, m.content, m.grp, m.revision, m.dedup_id, m.attributes,
m.sent_ms, m.origin, m.came_from, m.note, m.status

-- part: log_revisions
($4::bigint is null or m.revision >= $4) and ($5::bigint is null or m.revision <= $5)

-- name: log_messages
select {log_columns} from inturn_message m
where m.sequence_number > $1 and m.sequence_number <= $2 and {log_revisions} order by m.sequence_number limit $3;

-- name: log_of_group
(select {log_columns} from inturn_message m
 where m.queue = $6 and m.grp = $7 and m.sequence_number > $1 and m.sequence_number <= $2 and m.status = 1
     and {log_revisions}
 order by m.sequence_number limit $3)
union all
(select {log_columns} from inturn_message m
 where m.queue = $6 and m.grp = $7 and m.sequence_number + 0 > $1 and m.sequence_number + 0 <= $2 and m.status = 0
     and {log_revisions}
 order by m.sequence_number + 0 limit $3)
union all
(select {log_columns} from inturn_message m
 where m.queue = $6 and m.grp = $7 and m.sequence_number > $1 and m.sequence_number <= $2 and m.status = 2
     and {log_revisions}
 order by m.sequence_number limit $3)
order by sequence_number limit $3;

-- name: log_acknowledged
select sequence_number, sent_ms, grp from inturn_message
where status = 1 and sequence_number > $1 and sequence_number <= $2 order by sequence_number limit $3;

-- name: measure_log
insert into inturn_log_block (queue, last, bytes)
select $1, $3, coalesce(sum(octet_length(body)), 0) from inturn_message
where sequence_number > $2 and sequence_number <= $3
on conflict do nothing;

-- name: remove_acknowledged
delete from inturn_message where sequence_number = any($1::bigint[]) and status + 0 = 1;
