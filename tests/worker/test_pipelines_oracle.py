"""What every store keeps of pipelines against the memory store: any commands in any order have the same answers."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from shop import SHOPS

from inturn.core.identity import HeldKey
from inturn.core.pipeline.results import RejectedMessage
from inturn.store.records import (
    AppliedMark,
    GroupRecord,
    GroupUpdate,
    HeldRecord,
    OutboxClaim,
    OutputRecord,
    PipelineInfo,
    StoredDecision,
)

GROUPS = st.sampled_from(["a", "b", "c"])
TURNS = st.lists(st.integers(1, 4), max_size=3, unique=True)


def spot(turn: int) -> HeldKey:
    """Two messages are of each time, the later one first."""
    return 0, turn // 2, f"{-turn % 3}", f"t{turn}"


class Stores(RuleBasedStateMachine):
    """Gives each command to both."""

    kind = ""
    url: Any = None

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        path = Path(self._directory.name) / "shop.db"
        self.stores: list[Any] = [SHOPS[kind](path, self.url) for kind in ("memory", self.kind)]
        self.now = 1_000
        self.versions: dict[str, int] = {}
        self.held: dict[str, set[int]] = {}
        self.claims: list[tuple[OutboxClaim, OutboxClaim]] = []
        self.decided = 0
        self.both(lambda kept: kept.save(PipelineInfo(0, "other")))
        self.both(lambda kept: kept.save(PipelineInfo(0, "p", {"group": "account"})))

    def teardown(self) -> None:
        self.stores[1].close()
        self._directory.cleanup()

    def both(self, ask: Callable[[Any], Any], same: Callable[[Any], Any] = lambda answer: answer) -> list[Any]:
        answers = []
        for store in self.stores:
            with store.transaction():
                answers.append(ask(store.pipelines))
        assert same(answers[0]) == same(answers[1])
        return answers

    @rule(
        groups=st.lists(GROUPS, unique=True),
        turns=TURNS,
        outputs=st.integers(0, 2),
        due=st.none() | st.integers(1, 9),
        is_late=st.integers(0, 9).map(lambda n: not n),
        refused=st.none() | GROUPS,
    )
    def keep(
        self, groups: list[str], turns: list[int], outputs: int, due: int | None, is_late: bool, refused: str | None
    ) -> None:
        every = []
        for group in groups:
            version, had = self.versions.get(group, 0), self.held.get(group, set())
            gone = [spot(turn) for turn in had - set(turns)]
            held = [HeldRecord(*spot(turn), version, b"\0", "{}") for turn in turns]
            made = [
                OutputRecord(0, group, None, version, None, at, f"e{at}", f"{version}-{at}") for at in range(outputs)
            ]
            status = "waiting" if turns else "open"
            line = GroupRecord(group, version + is_late, status, b"\0t", b"s", len(turns), None, due)
            marks = [AppliedMark(b"%s%016d" % (group.encode(), version), b"\0digest\0", version)][: len(turns)]
            every.append(GroupUpdate(line, held, gone, made, marks))
        rejected = [RejectedMessage(refused, "late", "too late\0", "{}")] if refused else []

        def ask(kept: Any) -> Any:
            info = kept.info("p")
            info.counts["applied"] = info.counts.get("applied", 0) + len(groups)
            return sorted(kept.save_updates(info, every, rejected, self.now))

        (overtaken, _) = self.both(ask)
        assert overtaken == (sorted(groups) if is_late else [])
        if not overtaken:
            self.versions.update({group: self.versions.get(group, 0) + 1 for group in groups})
            self.held.update({group: set(turns) for group in groups})

    @rule(outputs=st.integers(1, 3), ms=st.integers(1, 20))
    def claim(self, outputs: int, ms: int) -> None:
        one, other = self.both(
            lambda kept: sorted(kept.claim(kept.info("p"), 10, outputs, self.now + ms, self.now)),
            lambda claims: [
                (each.group, each.attempts, [made.output for made in each.outputs], each.lapses, each.is_alone)
                for each in claims
            ],
        )
        self.claims += zip(one, other, strict=True)

    @precondition(lambda self: self.claims)
    @rule(which=st.integers(0, 99), count=st.integers(0, 3), ms=st.integers(0, 5), fails=st.booleans())
    def delivered(self, which: int, count: int, ms: int, fails: bool) -> None:
        claims = dict(zip(self.stores, self.claims[which % len(self.claims)], strict=True))
        error = "no\0" if fails else None
        by_store = iter(claims.values())
        self.both(lambda kept: kept.delivered(2, next(by_store), count, self.now + ms, error))

    @precondition(lambda self: self.claims)
    @rule(which=st.integers(0, 99), ms=st.integers(1, 30))
    def renew(self, which: int, ms: int) -> None:
        by_store = iter(self.claims[which % len(self.claims)])
        self.both(lambda kept: kept.renew(2, [next(by_store)], self.now + ms))

    @rule(begun=st.dictionaries(GROUPS, st.integers(0, 2), max_size=3), ms=st.integers(1, 20))
    def begin(self, begun: dict[str, int], ms: int) -> None:
        self.both(lambda kept: kept.save_begun(2, begun, self.now + ms))

    @rule(groups=st.lists(GROUPS, max_size=3))
    def decide(self, groups: list[str]) -> None:
        new = [StoredDecision(f"{self.decided + at}", group, "{}") for at, group in enumerate(groups, 1)]
        self.decided += len(new)
        self.both(lambda kept: kept.append_decisions(2, new))

    @precondition(lambda self: self.decided)
    @rule(which=st.integers(0, 99), void=st.sampled_from(["", "void\0"]))
    def take(self, which: int, void: str) -> None:
        name = f"{which % self.decided + 1}"
        self.both(lambda kept: kept.save_verdicts(2, {name: void}))
        self.both(lambda kept: kept.verdicts(2, [name, "1", "none"]))

    @rule(ms=st.integers(1, 15))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule(group=GROUPS, turns=TURNS, limit=st.integers(1, 5), now_us=st.integers(0, 9))
    def look(self, group: str, turns: list[int], limit: int, now_us: int) -> None:
        ids = [f"t{turn}" for turn in turns]
        self.both(lambda kept: kept.names())
        self.both(lambda kept: kept.info("p"), lambda info: (info.about, {k: n for k, n in info.counts.items() if n}))
        self.both(lambda kept: kept.info("p").outputs)
        self.both(lambda kept: sorted(kept.records(2, ["a", "c", "x"])))
        self.both(lambda kept: [kept.list_groups(2, "a", limit), kept.list_groups(2, "", limit, parked=True)])
        self.both(lambda kept: kept.summary(2))
        self.both(lambda kept: kept.due(2, now_us, 9), lambda due: sorted(due.items()))
        self.both(lambda kept: kept.begun_tasks(2, ["a", "b", "x"]))
        self.both(lambda kept: [kept.held(2, group), kept.held(2, group, turns), kept.held(2, group, None, ids)])
        self.both(lambda kept: kept.heads(2, [group, "a", "x"]))
        first = spot(turns[0]) if turns else (-(2**63), -(2**63), "", "")
        self.both(lambda kept: [kept.held_from(2, group, first, limit), kept.held_longest(2, group, limit)])
        asked = [b"%s%016d" % (each, version) for each in (b"a", b"b") for version in reversed(range(limit))]
        self.both(lambda kept: [kept.marks(2, group, asked), kept.marks(2, group, [])])
        self.both(lambda kept: kept.rejections(2, 0, limit), lambda rows: [each for _, each in rows])
        self.both(lambda kept: [kept.rejections_of(2, group, limit), kept.decisions_of(2, group, limit)])
        self.both(lambda kept: kept.outputs_of(2, group, limit), lambda made: [each[1:] for each in made])
        self.both(lambda kept: kept.outputs(2, 0, 99), lambda made: sorted((*each[1:],) for each in made))
        self.both(lambda kept: [kept.decisions(2, limit), kept.decisions(2, limit, group)])
        self.both(
            lambda kept: [
                *kept.pending_deliveries(2, ["a", "b"], 9),
                *kept.pending_deliveries(2, None, 9),
                *kept.pending_deliveries(2, None, 9, "a"),
            ],
        )


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.thorough
def test_random_commands_have_the_same_answers_as_in_the_memory_store(
    kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_schemas").next if kind == "postgres" else None
    machine = type("Machine", (Stores,), {"kind": kind, "url": staticmethod(url) if url else str})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=settings().max_examples * 30 // 100, stateful_step_count=40)
    )
