-- State that the servers of one database share.

-- Access keys, with their secrets, and settings: JSON, by name.
create table inturn_fact (
    name  text collate "C" primary key,
    value text not null
);

-- Receives that can be repeated by their attempt id.
create table inturn_attempt (
    queue    bigint not null,
    id       text   collate "C" not null,
    until_ms bigint not null,
    leases   text   not null, -- JSON
    primary key (queue, id)
);
create index inturn_attempt_due on inturn_attempt (until_ms);

-- Signatures that are not accepted a second time.
create table inturn_signature (
    signature bytea  primary key,
    until_s   bigint not null
);
create index inturn_signature_due on inturn_signature (until_s);
