-- A partition that is read to its end, such as a file, is not read again until it changes.

alter table inturn_source_partition add column is_finished integer not null default 0;
