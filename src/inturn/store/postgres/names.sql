-- Names that are too long for an index; see names.py.

-- name: add_name
insert into inturn_name (short, name) values ($1, $2) on conflict (short) do nothing;

-- name: names
select short, name from inturn_name where short = any($1::text[]);
