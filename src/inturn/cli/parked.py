"""Commands about groups that wait for a decision of an operator: list, explain, decide."""

import contextlib
import datetime as dt
import json
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from inturn.cli.decisions import BulkDecisionOptions, DecisionOptions, apply_or_wait, decide_many, show_dry_run
from inturn.cli.errors import Commands
from inturn.cli.options import (
    TABLE_ROWS,
    All,
    AsJson,
    ErrorLike,
    GroupLike,
    GroupName,
    GroupOptions,
    Groups,
    RowLimit,
    StoreAt,
)
from inturn.cli.output import cell, one_line, plain_console, print_json, print_json_array, print_text, print_truncated
from inturn.cli.targets import open_inspector
from inturn.core.errors import InputError
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.decision_service import Precondition
from inturn.core.pipeline.inspection import as_json as plain
from inturn.core.pipeline.selection import DecisionDraft, Selection, patterns
from inturn.core.texts import last_line
from inturn.core.words import counted, when

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inturn.core.pipeline.decision_service import DecisionService
    from inturn.core.pipeline.inspection import GroupStatus, Inspector
    from inturn.core.pipeline.journal import Counts
    from inturn.core.pipeline.results import FailingDelivery

parked = Commands(help="List and show parked or waiting groups, and decide about them.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class MessageSelector:
    """The message of a group that a decision is about."""

    revision: Annotated[int | None, "Message with this revision (default: the first held message)."] = None
    message_id: Annotated[str | None, typer.Option("--id", help="Message with this deduplication id.")] = None


@dataclass(frozen=True, kw_only=True)
class SeenPositionOptions:
    """The place at which the user saw a group."""

    if_revision: Annotated[
        int | None, "Decide only if the group stopped at this revision: the failed or the first missing one."
    ] = None
    if_epoch: Annotated[int | None, "Decide only if the group stopped in this epoch."] = None
    if_digest: Annotated[str | None, "Decide only if the failed message has this digest; see parked show --json."] = (
        None
    )

    @property
    def seen(self) -> Precondition:
        """The place."""
        return Precondition(self.if_revision, self.if_epoch, self.if_digest)


@parked.command("list")
def list_(
    store: StoreAt, error: ErrorLike = None, group: GroupLike = None, limit: RowLimit = None, as_json: AsJson = False
) -> None:
    """List groups that are parked, given up or waiting, the longest wait first, and failing deliveries."""
    selection = Selection((), patterns(group), error, is_all=True)
    most = limit if as_json else limit or TABLE_ROWS
    with open_inspector(store) as inspector:
        for path, reason in inspector.stray_files():
            print_text(
                f"{one_line(path)} is ignored: {one_line(reason)}; move it aside with `inturn parked tidy`.", err=True
            )
        chosen = (brief for brief in inspector.briefs() if selection.matches(brief.group, brief.error or None))
        statuses, total = inspector.longest_waits(chosen, most)
        failing = (delivery for delivery in inspector.failing() if selection.matches(delivery.group, delivery.error))
        first_failing = islice(failing, most)
        if as_json:
            print_json_array(chain(map(plain, statuses), map(plain, first_failing)), default=str)
        else:
            _print([*statuses], [*first_failing], inspector.counts())
        if most is not None:
            _print_hidden_counts(most, {"groups": total - most, "failing deliveries": sum(1 for _ in failing)})


def _print_hidden_counts(most: int, hidden: "Mapping[str, int]") -> None:
    """Print the number of entries of each kind that are not shown."""
    parts = [f"the first {most:,} of {most + count:,} {noun}" for noun, count in hidden.items() if count > 0]
    if parts:
        print_truncated(" and ".join(parts))


def _print(statuses: "Sequence[GroupStatus]", failing: "Sequence[FailingDelivery]", counts: "Counts | None") -> None:
    table = Table("group", "status", "holds", "since", "error")
    for status in statuses:
        since = f"{status.oldest:%Y-%m-%d %H:%M:%S}" if status.oldest else ""
        table.add_row(cell(status.group), status.status, f"{status.held:,}", since, cell(last_line(status.error)))
    now = dt.datetime.now(dt.UTC)
    for row in failing:
        cause = f"{last_line(row.error)}; failed {counted(row.attempts, 'time')}"
        next_try = (
            f"next attempt {when(row.next_try, now)}"
            if row.next_try
            else "no further attempts: see inturn parked redeliver"
        )
        table.add_row(cell(row.group), row.status, counted(row.outputs, "output"), "", cell(f"{cause}, {next_try}"))
    plain_console().print(table if statuses or failing else "No group is parked or waiting.")
    if counts is not None:
        print_text(_balance_text(counts))


def _balance_text(counts: "Counts") -> str:
    """Return the counts of all messages in one line."""
    into = {"received": counts.received, "released": counts.released}
    out = {"applied": counts.applied, "duplicate": counts.duplicate, "stale": counts.stale, "held": counts.held}
    out |= {f"rejected as {reason}": count for reason, count in sorted(counts.rejected.items())}
    return " = ".join(" + ".join(f"{count:,} {name}" for name, count in side.items()) for side in (into, out))


@parked.command()
def tidy(store: StoreAt, as_json: AsJson = False) -> None:
    """Move files that are not decisions out of the decisions folder, to decisions/aside."""
    with open_inspector(store) as inspector:
        moved = inspector.move_stray_files()
    if as_json:
        print_json([{"path": path, "why": reason} for path, reason in moved])
        return
    for path, reason in moved:
        print_text(f"moved {one_line(path)} to decisions/aside: {one_line(reason)}.")
    if not moved:
        print_text("Nothing to move: the store has no such files.")


@parked.command()
def redeliver(store: StoreAt, groups: Groups = None, every: All = False, as_json: AsJson = False) -> None:
    """Deliver permanently refused outputs again, of named groups or, with --all, of every group."""
    if every == bool(groups):
        raise InputError("expected names of groups, or --all alone")
    with open_inspector(store) as inspector:
        count = inspector.redeliver(groups or None)
    if as_json:
        print_json({"groups": count})
    elif not count:
        print_text("Nothing to deliver again: no output was refused permanently.")
    else:
        print_text(f"{counted(count, 'group')} will be delivered again by the next worker that runs with --deliver.")


@parked.command()
def show(store: StoreAt, group: GroupName, as_json: AsJson = False) -> None:
    """Show the messages that a group holds, with their content."""
    with open_inspector(store) as inspector:
        status, held = inspector.group(group), inspector.held(group)
        explanation = inspector.explain(group)
    if as_json:
        document = plain(status) | {"messages": [plain(message) for message in held]}
        print_json(document, default=str)
        return
    print_text(explanation)
    for message in held:
        print_text(f"{inspector.place(message)}: {json.dumps(message.content, default=str, ensure_ascii=False)}")


@parked.command()
def replace(
    store: StoreAt,
    group: GroupName,
    content: Annotated[str, "New content as JSON, or @FILE; omitted fields are not changed."],
    message: MessageSelector,
    position: SeenPositionOptions,
    options: DecisionOptions,
) -> None:
    """Replace the content of a held message; the old content is stored with the decision."""
    try:
        text = Path(content[1:]).read_text(encoding="utf-8") if content.startswith("@") else content
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "the file is not UTF-8"
        raise InputError(f"--content is {content!r}: {reason}; expected JSON, or @FILE") from error
    try:
        new = json.loads(text)
    except ValueError as error:
        raise InputError(f"--content {text!r} is not JSON: {error}") from error
    if not isinstance(new, dict):
        raise InputError(f"--content {text!r} is not a JSON object; expected the fields of the message")
    _decide(store, group, DecisionAction.REPLACE, options, **asdict(message), new=new, seen=position.seen)


@parked.command()
def drop(
    store: StoreAt,
    group_options: GroupOptions,
    message: MessageSelector,
    position: SeenPositionOptions,
    options: BulkDecisionOptions,
) -> None:
    """Reject the message at which a group is parked, and continue after it; for one group or many."""
    if group_options.name is None and message != MessageSelector():
        raise InputError("--revision and --id select one message; name its group alone, or omit them")
    _decide_about(store, DecisionAction.DROP, group_options, options, position, **asdict(message))


def _add_command(action: DecisionAction, text: str) -> None:
    def command(
        store: StoreAt, group_options: GroupOptions, position: SeenPositionOptions, options: BulkDecisionOptions
    ) -> None:
        _decide_about(store, action, group_options, options, position)

    parked.command(action.value, help=text)(command)


_add_command(
    DecisionAction.SKIP, "Skip the missing revisions before the held messages of a group; for one group or many."
)
_add_command(
    DecisionAction.RESUME,
    "Try the failed message of a group again, or wait again for missing revisions; for one group or many.",
)
_add_command(DecisionAction.GIVE_UP, "Reject the held and all later messages of a group; for one group or many.")


def explain(store: StoreAt, group: GroupName, as_json: AsJson = False) -> None:
    """Explain the position of a group, what it waits for and since when."""
    with open_inspector(store) as inspector:
        explanation = inspector.explain(group)
        if as_json:
            refused = None if _is_known(inspector, group) else inspector.rejection_summary(group)
            status = plain(inspector.group(group)) if refused is None else plain(refused) | {"status": "rejected"}
            document = status | {"explanation": explanation}
            print_json(document, default=str)
        else:
            print_text(explanation)


def _is_known(inspector: "Inspector", group: str) -> bool:
    with contextlib.suppress(InputError):
        inspector.group(group)
        return True
    return False


def _decide_about(
    store: str,
    action: DecisionAction,
    group_options: GroupOptions,
    options: DecisionOptions,
    position: SeenPositionOptions,
    **message: Any,
) -> None:
    if group_options.name is not None:
        _decide(store, group_options.name, action, options, seen=position.seen, **message)
        return
    if position != SeenPositionOptions():
        raise InputError("--if-revision, --if-epoch and --if-digest apply to one group; name that group alone")
    chosen = group_options.selection
    decide_many(store, action, chosen.names, options, group=chosen.groups, error=chosen.error, all=chosen.is_all)


def _decide(store: str, group: str, action: DecisionAction, options: DecisionOptions, **subject: Any) -> None:
    """Decide about one group, and wait until the decision is applied by the running process or by this command."""
    with open_inspector(store) as inspector:
        decision = inspector.decision(action, group, by=options.author, why=options.why, **subject)
        draft = DecisionDraft(action, [decision])
        if options.dry_run:
            show_dry_run(inspector, draft, options)
            return
        if decision.new and options.pipeline is None:
            _warn_of_unknown(inspector, group, decision.new)
        report, takes = apply_or_wait(inspector, inspector.record(draft), options, store), inspector.applied_when
    void = report.void.get(group)
    if options.as_json:
        document = {"action": action.value, "group": group, "decision": decision.name}
        print_json(document | {"taken": not report.pending, "void": void})
    elif report.pending:
        print_text(f"{action}: recorded as {decision.name}; {takes} (or pass --pipeline to apply it now).")
    elif void:
        print_text(f"{action}: void, {one_line(void)}")
    else:
        print_text(f"{action}: done.")
        with open_inspector(store) as inspector:
            print_text(inspector.explain(group))
    if void:
        raise typer.Exit(1)


def _warn_of_unknown(inspector: "DecisionService", group: str, new: "Mapping[str, Any]") -> None:
    """Print the fields of new content that no held message has; without the pipeline, its type is not known."""
    known = {name for message in inspector.held(group) for name in message.content or ()}
    if unknown := sorted(new.keys() - known):
        names = ", ".join(one_line(repr(name)) for name in unknown)
        print_text(
            f"Not checked: no held message has the fields {names}; pass --pipeline to check the content.", err=True
        )
