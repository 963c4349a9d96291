-- When an output was made, and the trace context in which. Older outputs, and those of older workers, have neither.

alter table inturn_output add column trace text, add column made_ms bigint; -- trace: W3C traceparent
