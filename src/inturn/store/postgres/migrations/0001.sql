-- Queues: the first version.

create table inturn_meta (name text primary key, value bigint);
insert into inturn_meta (name, value) values ('version', 1), ('catalog', 1), ('queues', 0);
