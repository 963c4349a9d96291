BEGIN TRANSACTION;
CREATE TABLE inturn_dedup (
    queue           integer not null,
    scope           text    not null,
    id              text    not null,
    sequence_number integer not null,
    until_ms        integer,
    primary key (queue, scope, id)
) without rowid;
INSERT INTO "inturn_dedup" VALUES(1,'','tx-1',17592186044417,NULL);
INSERT INTO "inturn_dedup" VALUES(1,'','tx-2',17592186044418,NULL);
CREATE TABLE inturn_hold (
    sequence_number integer primary key,
    queue           integer not null,
    grp             text,
    until_ms        integer,
    token           integer,
    attempts        integer not null,
    extended        integer not null,
    since_ms        integer not null
);
INSERT INTO "inturn_hold" VALUES(17592186044418,1,'acct-1',NULL,NULL,1,0,0);
CREATE TABLE inturn_key (
    space    text not null,
    key      text not null,
    record   text not null, -- JSON
    until_ms integer,
    primary key (space, key)
) without rowid;
CREATE TABLE inturn_message (
    sequence_number integer primary key,
    queue           integer not null,
    grp             text,
    revision        integer,
    dedup_id        text,
    body            blob    not null,
    content         integer not null,
    attributes      text,
    sent_ms         integer not null,
    origin          integer,
    came_from       text,
    note            text,
    done            integer not null default 0 -- acknowledged, and kept for readers
);
INSERT INTO "inturn_message" VALUES(17592186044418,1,'acct-1',2,'tx-2','{"amount":2}',1,'{"from":"web"}',1700000000000,NULL,NULL,NULL,0);
INSERT INTO "inturn_message" VALUES(17592186044419,1,NULL,NULL,NULL,'text',0,NULL,1700000000000,NULL,NULL,NULL,0);
CREATE TABLE inturn_meta (name text primary key, value) without rowid;
INSERT INTO "inturn_meta" VALUES('queues',1);
INSERT INTO "inturn_meta" VALUES('version',1);
CREATE TABLE inturn_queue (
    number     integer primary key,
    name       text    not null unique,
    settings   text    not null, -- JSON
    readers    text    not null, -- JSON: up to which sequence number each has read
    created_ms integer not null,
    depth      integer not null, -- messages that are not acknowledged
    last       integer not null, -- the last sequence number
    tokens     integer not null  -- the last fencing token
);
INSERT INTO "inturn_queue" VALUES(1,'payments','{"visibility_timeout_s":60,"delay_s":0,"retention_s":null,"dedup_window_s":null,"dedup_scope":"queue","content_dedup":false,"dead_letter":null,"max_receives":null}','{"audit":17592186044418}',1700000000000,2,17592186044419,2);
CREATE TABLE inturn_ready (
    sequence_number integer primary key,
    grp             text
);
INSERT INTO "inturn_ready" VALUES(17592186044418,'acct-1');
INSERT INTO "inturn_ready" VALUES(17592186044419,NULL);
CREATE INDEX inturn_pending on inturn_message (queue, grp, sequence_number) where done = 0;
CREATE INDEX inturn_done on inturn_message (sequence_number) where done = 1;
CREATE INDEX inturn_hold_group on inturn_hold (queue, grp);
CREATE INDEX inturn_hold_due on inturn_hold (queue, until_ms) where until_ms is not null;
CREATE INDEX inturn_dedup_due on inturn_dedup (until_ms) where until_ms is not null;
CREATE INDEX inturn_key_due on inturn_key (until_ms) where until_ms is not null;
COMMIT;
