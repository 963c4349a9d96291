-- Statements of incarnations; see core/queue/incarnation.py. The transaction that begins one holds the numbering lock.

-- name: incarnation
select id from inturn_incarnation where queue = $1 and after < $2 order by after desc limit 1;

-- name: begin_incarnation
insert into inturn_incarnation (queue, after, id, made_ms)
select n.queue, n.last, $2, $3 from inturn_numbering n
where n.queue = $1
  and $2 is distinct from (select i.id from inturn_incarnation i where i.queue = $1 order by i.after desc limit 1)
on conflict (queue, after) do update set id = excluded.id, made_ms = excluded.made_ms;

-- The same as trim() in core/queue/incarnation.py.
-- name: trim_incarnations
delete from inturn_incarnation where queue = $1
and after < (select i.after from inturn_incarnation i where i.queue = $1 order by i.after desc limit 1 offset $3)
and after < (select max(i.after) from inturn_incarnation i where i.queue = $1 and i.after < $2);

-- name: remove_incarnations
delete from inturn_incarnation where queue = $1;
