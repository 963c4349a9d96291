"""A process that runs decisions dry with the user's handler: request on standard input, answer on standard output.

``python -m inturn.console.dry_run_process``: the store is opened, then the process is isolated, then the user's code is
loaded. Output that the code prints is redirected to standard error.
"""

import os
import sys
from contextlib import suppress
from typing import Any

import msgspec

from inturn.console.isolation import isolate, limit_resources
from inturn.console.store_addresses import StoreAddress
from inturn.core.errors import InturnError, StoreMismatch
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.decision_service import DecisionService, Precondition
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.dry_run import DryRunSummary
from inturn.core.pipeline.selection import DecisionDraft
from inturn.definitions import load
from inturn.dry_runs import run


class DryRunRequest(msgspec.Struct, frozen=True):
    """A request to run decisions dry.

    Attributes:
        store: the address of the store.
        definitions: the pipelines, as given on the command line.
        action: the decision.
        names: the groups; none: the groups that ``selection`` selects.
        marks: the state of each group that the user saw; see :class:`inturn.core.pipeline.decision_service.Seen`.
        selection: ``group``, ``error``, ``all``: :class:`~inturn.core.pipeline.decision_service.DecisionArguments`.
        content: for ``replace``, the new content.
        sample: number of groups of each outcome that are shown in full.
        most: maximum number of groups to run.
    """

    store: str
    definitions: list[str]
    action: DecisionAction
    names: list[str]
    marks: dict[str, str]
    selection: dict[str, Any]
    content: dict[str, Any] | None
    sample: int
    most: int


class DryRunAnswer(msgspec.Struct, frozen=True):
    """The answer.

    Attributes:
        groups: number of groups that the decision is about.
        outcomes: number of groups that were run, by outcome.
        sample: some groups in full; see :meth:`inturn.core.pipeline.dry_run.DryRun.to_dict`.
        error: why the dry run failed; empty if it succeeded.
    """

    groups: int = 0
    outcomes: dict[str, int] = {}
    sample: list[dict[str, Any]] = []
    error: str = ""


def answer(request: DryRunRequest) -> DryRunAnswer:
    """Run decisions dry; isolates this process."""
    try:
        with StoreAddress(request.store, request.store).open() as decider:
            seen, content = Precondition.marked(request.marks), request.content
            draft = decider.prepare(
                request.action, *request.names, content=content, seen=seen, by="dry run", **request.selection
            )
            isolate()
            total = len(draft.decisions) + len(draft.void)
            part = DecisionDraft(draft.action, draft.decisions[: request.most], draft.void)
            summary = _run([load(definition) for definition in request.definitions], decider, part, request.sample)
    except InturnError as error:
        return DryRunAnswer(error=str(error))
    return DryRunAnswer(total, dict(summary.outcomes), [trial.to_dict() for trial in summary.sample])


def _run(pipelines: list[Pipeline], decider: DecisionService, draft: DecisionDraft, sample: int) -> DryRunSummary:
    """Run a draft with the definition that matches the store.

    Raises:
        StoreMismatch: if no definition matches.
    """
    *leading, last = pipelines
    for pipeline in leading:
        with suppress(StoreMismatch):
            summary = DryRunSummary(sample)
            summary.add(run(pipeline, decider, draft))
            return summary
    summary = DryRunSummary(sample)
    summary.add(run(last, decider, draft))
    return summary


def main() -> None:
    """Answer the request on standard input."""
    limit_resources()
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=DryRunRequest)
    out = os.dup(1)
    os.dup2(2, 1)
    os.write(out, msgspec.json.encode(answer(request), enc_hook=str))


if __name__ == "__main__":
    main()
