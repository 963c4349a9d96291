"""``inturn upgrade``: upgrade states of an older version without waiting for the next message of each group."""

from inturn.cli.decisions import DecisionOptions, decide_many
from inturn.cli.options import AsJson, GroupLike, Groups, StoreAt, YesToMany
from inturn.cli.parked import By, Definition, DryRunOption, Sample, WaitS, Why
from inturn.cli.places import look_into
from inturn.cli.texts import line, say
from inturn.core.pipeline.decision import DecisionAction


def upgrade(
    store: StoreAt,
    groups: Groups = None,
    group: GroupLike = None,
    by: By = "",
    why: Why = "",
    pipeline: Definition = None,
    wait_s: WaitS = 10.0,
    dry_run: DryRunOption = False,
    sample: Sample = 3,
    yes: YesToMany = False,
    as_json: AsJson = False,
) -> None:
    """Upgrade states of an older version to that of the pipeline, of all groups or of selected ones."""
    if not (groups or as_json):
        with look_into(store) as look:
            if all(each.old_version is None for each in look.groups()):
                say(f"upgrade: all states of {line(store)} already have version {look.version}.")
                return
    how = DecisionOptions(
        by=by, why=why, pipeline=pipeline, wait_s=wait_s, as_json=as_json, is_dry=dry_run, sample=sample, yes=yes
    )
    selected = {"group": group or [], "all": not (groups or group)}
    decide_many(store, DecisionAction.UPGRADE, groups or [], how, **selected)
