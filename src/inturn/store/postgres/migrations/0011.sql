-- Names of groups and ids that are too long for an index; other tables contain their short form, see names.py. A worker
-- that does not know this table can continue until there is such a name.

create table inturn_name (
    short text collate "C" primary key,
    name  text not null -- the name itself
);
