-- A position is checked when a user enters it: each source stores the form of its positions. See ingest/positions.py.

alter table inturn_source_partition add column position_form text not null default ''; -- empty: any
