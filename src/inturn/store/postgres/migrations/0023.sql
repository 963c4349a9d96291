-- The ids of records of sources that have no positions, such as a queue of a broker.

create table inturn_source_id (
    source text collate "C",
    id     text collate "C",
    digest text not null, -- of the message
    primary key (source, id)
);
