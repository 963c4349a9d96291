-- When an output was made, and the trace context in which. Older outputs have neither.

alter table inturn_output add column trace text; -- W3C traceparent
alter table inturn_output add column made_ms integer;
