"""``inturn upgrade``: upgrade states of an older version without waiting for the next message of each group."""

from inturn.cli.decisions import BulkDecisionOptions, decide_many
from inturn.cli.options import GroupLike, Groups, StoreAt
from inturn.cli.output import one_line, print_text
from inturn.cli.targets import open_inspector
from inturn.core.pipeline.decision import DecisionAction


def upgrade(store: StoreAt, groups: Groups = None, *, group: GroupLike = None, options: BulkDecisionOptions) -> None:
    """Upgrade states of an older version to that of the pipeline, of all groups or of selected ones."""
    if not (groups or options.as_json):
        with open_inspector(store) as inspector:
            if all(group.old_version is None for group in inspector.groups()):
                print_text(f"upgrade: all states of {one_line(store)} already have version {inspector.version}.")
                return
    selected = {"group": group or [], "all": not (groups or group)}
    decide_many(store, DecisionAction.UPGRADE, groups or [], options, **selected)
