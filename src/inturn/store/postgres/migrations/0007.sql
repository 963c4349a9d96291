-- The identity of the database, and the incarnation in which each number of a queue was assigned; see
-- core/queue/incarnation.py.

create table inturn_identity (
    name  text collate "C" primary key,
    value text not null
);
insert into inturn_identity (name, value)
values ('identity', md5(random()::text || clock_timestamp()::text || pg_backend_pid()::text || random()::text));

create table inturn_incarnation (
    queue   bigint not null,
    after   bigint not null, -- the last sequence number before it
    id      text   collate "C" not null,
    made_ms bigint not null,
    note    text,            -- the reason, if a user began it
    primary key (queue, after)
);
