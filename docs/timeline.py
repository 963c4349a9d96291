"""Draws the rules of a timeline from the table that the code obeys, so that the page cannot say anything else.

``python docs/timeline.py`` writes them into ``design.md``, between two comments; a test tells when it must be run.

The table is :data:`inturn.core.pipeline.timeline.TABLE` as it is. It says what becomes of a message, not where its
group then stands: that depends on what is held, on the handler and on decisions. So for the diagram all small histories
are run, and what was seen to happen is drawn.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from inturn import Gapless, Pipeline, Wait
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.decision import Decision, DecisionAction, decide
from inturn.core.pipeline.fold import Fold, Group
from inturn.core.pipeline.grades import GaplessTimeline
from inturn.core.pipeline.journal import Journal
from inturn.core.pipeline.timeline import TABLE, Relation, Status, TimelineVerdict

PAGE = Path(__file__).with_name("design.md")
BEGIN, END = "<!-- timeline: begin -->", "<!-- timeline: end -->"

PLACES = {
    Relation.NEXT: "it is its turn",
    Relation.AHEAD: "its turn has not come",
    Relation.COPY: "applied, held or a conflict already, same content",
    Relation.OTHER: "applied or held already, other content",
    Relation.FORGOTTEN: "behind, and no longer remembered",
    Relation.SKIPPED: "in a gap that was skipped",
    Relation.LATE: "below the watermark",
}
STATUSES = {
    Status.OPEN: "nothing is held",
    Status.WAITING: "something is held until its turn",
    Status.GAP: "parked: a gap outlived its wait",
    Status.FAILED: "parked: the handler raised",
    Status.GIVEN_UP: "parked for good: a person gave it up",
}
GROUP_CHANGES = {TimelineVerdict.APPLY, TimelineVerdict.EARLY, TimelineVerdict.BEHIND}


def table() -> str:
    """Return the table as Markdown: a row for each place of a message, a column for each status of its group."""
    rows = [
        ["the message", *(f"group is `{status}`" for status in STATUSES)],
        ["---"] * (len(STATUSES) + 1),
        *(
            [f"`{place}`: {text}", *(TABLE[status].get(place, "") for status in STATUSES)]
            for place, text in PLACES.items()
        ),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def diagram() -> str:
    """Return the statuses and their transitions as a Mermaid state diagram."""
    labels: dict[tuple[Status, Status], set[str]] = defaultdict(set)
    for before, event, after in seen():
        labels[before, after].add(event)
    lines = [
        f"    {_name(before)} --> {_name(after)}: {', '.join(sorted(labels[before, after]))}"
        for before, after in product(STATUSES, STATUSES)
        if labels[before, after]
    ]
    # Mermaid ends a description at a colon.
    names = [f"    {_name(status)}: {status} ({text.replace(':', ',')})" for status, text in STATUSES.items()]
    return "\n".join(["stateDiagram-v2", *names, f"    [*] --> {Status.OPEN}", *lines])


def _name(status: Status) -> str:
    return status.replace(" ", "_")


def seen() -> Iterator[tuple[Status, str, Status]]:
    """Every change of status that some history of three messages, decisions or ends of steps leads to, and why."""
    end_of_step = None
    messages = [(content, revision, epoch) for content in ("good", "bad") for revision in (1, 2) for epoch in (0, 1)]
    for history in product([*messages, ("good", 3, 0), *DecisionAction, end_of_step], repeat=3):
        group, mended = _group()
        for step in history:
            before = group.timeline.status
            if step is end_of_step:
                group.finish()
                event = "the wait is over"
            elif isinstance(step, DecisionAction):
                event = step.value
                if step is DecisionAction.RESUME:
                    mended.append(True)
                decide(
                    group,
                    _decision(step, group),
                    lambda entry, new: replace(entry, message={**entry.message, **new}),
                    lambda entry: entry.message,
                )
            else:
                content, revision, epoch = step
                mark, message = content.encode().ljust(32), {"content": content}
                entry = TimelineEntry(position=revision, digest=mark, message=message, epoch=epoch)
                renews = group.timeline.begins_epoch(entry)
                verdict = group.process(entry)
                event = "higher epoch" if renews else verdict.value
            after = group.timeline.status
            if before is not after:
                yield before, "the handler raises" if after is Status.FAILED else event, after


def _group() -> tuple[Group, list[bool]]:
    """Return a new group, and a list that is filled once its handler's code has been mended."""
    mended: list[bool] = []

    def handler(state: None, message: dict[str, Any]) -> tuple[None, list[Any]]:
        if message["content"] == "bad" and not mended:
            raise ValueError(message["content"])
        return state, []

    order = Gapless("revision", epoch="epoch")
    pipeline = Pipeline(
        name="timeline",
        group="group",
        order=order,
        handler=handler,
        state=lambda: None,
        on_gap=Wait("0 seconds", then="park"),
    )
    return Group("a", order.timeline(), Fold(pipeline, pipeline.state), Journal(), now_us=0), mended


def _decision(action: DecisionAction, group: Group) -> Decision:
    """Return a decision about the first message that the group holds, or the gap in front of it."""
    timeline = group.timeline
    head = timeline.head() if timeline.held else None
    gap = timeline.gaps()[:1] if isinstance(timeline, GaplessTimeline) else []
    first, last = gap[0][:2] if gap and action is DecisionAction.SKIP else (head and head.position, None)
    old = {"group": group.name, "revision": first, "epoch": timeline.epoch, **(head.message if head else {})}
    new = {**old, "content": "good"}
    epoch = timeline.epoch or 0
    return Decision(
        id="", action=action, group=group.name, by="", at_us=0, epoch=epoch, position=first, last=last, old=old, new=new
    )


def render() -> str:
    """Return the block between the two comments."""
    stays = [verdict for verdict in TimelineVerdict if verdict not in GROUP_CHANGES]
    return f"""{BEGIN}

{table()}

A verdict of {", ".join(stays[:-1])} or {stays[-1]} does not change the group's status; the others may,
and so may a decision: {", ".join(action for action in DecisionAction if action is not DecisionAction.UPGRADE)}.

```mermaid
{diagram()}
```

{END}"""


def write(page: Path = PAGE) -> None:
    """Put what the code says between the comments of the page."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    page.write_text(before + render() + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    write()
