-- The ids of records of sources that have no positions, such as a queue of a broker.

create table inturn_source_id (
    source text not null,
    id     text not null,
    digest text not null, -- of the message
    primary key (source, id)
) without rowid;
