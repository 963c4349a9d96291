-- The identity of the database, and the incarnation in which each number of a queue was assigned; see
-- core/queue/incarnation.py.

insert into inturn_meta (name, value) values ('identity', lower(hex(randomblob(16))));

create table inturn_incarnation (
    queue   integer not null,
    after   integer not null, -- the last sequence number before it
    id      text    not null,
    made_ms integer not null,
    note    text,             -- why a person made it
    primary key (queue, after)
) without rowid;
