-- A position is checked where a person gives it: each source says which form its positions have. See ingest/positions.py.

alter table inturn_source_partition add column position_form text not null default ''; -- empty: any
