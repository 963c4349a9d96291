-- Views of the results of pipelines, for joins with other tables. A state is stored as MessagePack, from which it is
-- read, and as JSON for these views; inturn_json is json_form.of_message_pack.

alter table inturn_group add column state_json text;
update inturn_group set state_json = inturn_json(state);

create view inturn_states as
select p.name as pipeline, g.grp as "group", g.status as status, g.held as held, g.state_json as state
from inturn_group g join inturn_pipeline p on p.number = g.pipeline;

create view inturn_outputs as
select p.name as pipeline, o.number as number, o.grp as "group", o.epoch as epoch, o.revision as revision, o.id as id,
    o.at as "index", o.effect_id as effect_id, o.output as output
from inturn_output o join inturn_pipeline p on p.number = o.pipeline;

create view inturn_rejections as
select p.name as pipeline, r.number as number, r.grp as "group", r.reason as reason, r.detail as detail,
    r.message as message, r.at_ms as at_ms
from inturn_rejected r join inturn_pipeline p on p.number = r.pipeline;
