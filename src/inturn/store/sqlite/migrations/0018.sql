-- The time at which an output was produced, and its trace context. Older outputs have neither.

alter table inturn_output add column trace text; -- W3C traceparent
alter table inturn_output add column made_ms integer;
