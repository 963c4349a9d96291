-- Named statements for producers; see producers.py. Each reads only the rows that it returns.

-- name: revisions
select g.grp, r.last from unnest($2::text[]) g (grp) cross join lateral (
    select last from inturn_revision where queue = $1 and grp = g.grp offset 0
) r;

-- name: save_revisions
insert into inturn_revision (queue, grp, last) select $1, * from unnest($2::text[], $3::bigint[])
on conflict (queue, grp) do update set last = excluded.last;

-- name: writers
select g.grp, w.name, w.epoch, w.until_ms, w.since_ms from unnest($2::text[]) g (grp) cross join lateral (
    select * from inturn_writer where queue = $1 and grp = g.grp offset 0
) w;

-- name: save_writer
insert into inturn_writer (queue, grp, name, epoch, until_ms, since_ms) values ($1, $2, $3, $4, $5, $6)
on conflict (queue, grp) do update
set name = excluded.name, epoch = excluded.epoch, until_ms = excluded.until_ms, since_ms = excluded.since_ms;

-- name: priority
select priority from inturn_priority where queue = $1 and grp = $2;

-- name: highest_priority
select priority from inturn_priority where queue + 0 = $1 order by priority desc limit 1;

-- name: save_priority
insert into inturn_priority (queue, grp, priority) values ($1, $2, $3)
on conflict (queue, grp) do update set priority = excluded.priority;
