-- Names of groups and ids that are too long for an index. Everywhere else their short form stands; see names.py. Until
-- there is such a name, who does not know of them goes on.

create table inturn_name (
    short text collate "C" primary key,
    name  text not null -- as it would stand there
);
