-- Names that are too long for an index; see names.py.

-- name: add_name
with added as (
    insert into inturn_name (short, name) values ($1, $2) on conflict (short) do nothing
), told as ( -- stops workers that do not know migration 11, which would take the short form for the name
    insert into inturn_meta (name, value)
    select 'readable_from', 11 where not exists (
        select from inturn_meta where name = 'readable_from' and value >= 11
    )
    on conflict (name) do update set value = excluded.value returning name
)
update inturn_meta set value = value + 1 where name = 'catalog' and exists (select from told);

-- name: names
select short, name from inturn_name where short = any($1::text[]);
