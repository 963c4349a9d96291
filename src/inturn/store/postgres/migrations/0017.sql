-- The time at which an output was produced, and its trace context. Outputs of older workers have neither.

alter table inturn_output add column trace text, add column made_ms bigint; -- trace: W3C traceparent
