-- Statements of incarnations; see core/queue/incarnation.py. The transaction that begins one holds the numbering lock.

-- name: begin_incarnation
insert into inturn_incarnation (queue, after, id, created_ms)
select n.queue, n.last, $2, $3 from inturn_numbering n
where n.queue = $1
  and $2 is distinct from (select i.id from inturn_incarnation i where i.queue = $1 order by i.after desc limit 1)
on conflict (queue, after) do update set id = excluded.id, created_ms = excluded.created_ms;
