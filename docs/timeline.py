"""Draws the rules of a timeline from the table that the code obeys, so that the page cannot say anything else.

``python docs/timeline.py`` writes them into ``design.md``, between two comments; a test tells when it must be run.

The table is :data:`inturn.core.timeline.TABLE` as it is. It says what becomes of a message, not where its group then
stands: that depends on what is held and on the handler. So for the diagram all small histories are run, and what was
seen to happen is drawn.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from inturn import Gapless, Pipeline, Wait
from inturn.core.fold import Fold, Group, Journal
from inturn.core.message import Entry
from inturn.core.timeline import TABLE, Place, Status, Verdict, timeline

PAGE = Path(__file__).with_name("design.md")
BEGIN, END = "<!-- timeline: begin -->", "<!-- timeline: end -->"

PLACES = {
    Place.NEXT: "it is its turn",
    Place.AHEAD: "its turn has not come",
    Place.COPY: "applied or held already, same content",
    Place.OTHER: "applied or held already, other content",
    Place.FORGOTTEN: "behind, and no longer remembered",
    Place.SKIPPED: "in a gap that was skipped",
    Place.LATE: "below the watermark",
}
STATUSES = {
    Status.OPEN: "nothing is held",
    Status.WAITING: "something is held until its turn",
    Status.GAP: "parked: a gap outlived its wait",
    Status.FAILED: "parked: the handler raised",
}
GROUP_CHANGES = {Verdict.APPLY, Verdict.EARLY, Verdict.BEHIND}


def table() -> str:
    """The table as Markdown: a row for each place of a message, a column for each status of its group."""
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
    """The statuses and what leads from one to the other as a Mermaid state diagram."""
    labels: dict[tuple[Status, Status], set[str]] = defaultdict(set)
    for before, event, after in seen():
        labels[before, after].add(event)
    lines = [
        f"    {before} --> {after}: {', '.join(sorted(labels[before, after]))}"
        for before, after in product(STATUSES, STATUSES)
        if labels[before, after]
    ]
    # Mermaid ends a description at a colon.
    names = [f"    {status}: {status} ({text.replace(':', ',')})" for status, text in STATUSES.items()]
    return "\n".join(["stateDiagram-v2", *names, f"    [*] --> {Status.OPEN}", *lines])


def seen() -> Iterator[tuple[Status, str, Status]]:
    """Every change of status that some history of three messages or ends of steps leads to, and what made it."""

    def handler(state: None, message: str) -> tuple[None, list[Any]]:
        if message == "bad":
            raise ValueError(message)
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
    end_of_step = None
    messages = [(content, revision, epoch) for content in ("good", "bad") for revision in (1, 2) for epoch in (0, 1)]
    for history in product([*messages, ("good", 3, 0), end_of_step], repeat=3):
        group = Group("a", timeline(order), Fold(pipeline, pipeline.state), Journal(), now_us=0)
        for each in history:
            before = group.timeline.status
            if each is end_of_step:
                group.finish()
                event = "the wait is over"
            else:
                content, revision, epoch = each
                entry = Entry(turn=revision, digest=content.encode().ljust(32), message=content, epoch=epoch)
                renews = group.timeline.renews(entry)
                verdict = group.offer(entry)
                event = "higher epoch" if renews else verdict.value
            after = group.timeline.status
            if before is not after:
                yield before, "the handler raises" if after is Status.FAILED else event, after


def render() -> str:
    """The block between the two comments."""
    stays = [verdict for verdict in Verdict if verdict not in GROUP_CHANGES]
    return f"""{BEGIN}

{table()}

A verdict of {", ".join(stays[:-1])} or {stays[-1]} leaves the group where it is; the others may move it:

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
