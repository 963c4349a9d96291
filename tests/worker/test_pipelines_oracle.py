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


def spot(position: int) -> HeldKey:
    """Two messages are of each time, the later one first."""
    return 0, position // 2, f"{-position % 3}", f"t{position}"


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
        self.both(lambda store: store.save(PipelineInfo(0, "other")))
        self.both(lambda store: store.save(PipelineInfo(0, "p", {"group": "account"})))

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
            removed = [spot(position) for position in had - set(turns)]
            held = [HeldRecord(*spot(position), version, b"\0", "{}") for position in turns]
            records = [
                OutputRecord(0, group, None, version, None, index, f"e{index}", f"{version}-{index}")
                for index in range(outputs)
            ]
            status = "waiting" if turns else "open"
            record = GroupRecord(group, version + is_late, status, b"\0t", b"s", len(turns), None, due)
            marks = [AppliedMark(b"%s%016d" % (group.encode(), version), b"\0digest\0", version)][: len(turns)]
            every.append(GroupUpdate(record, held, removed, records, marks))
        rejected = [RejectedMessage(refused, "late", "too late\0", "{}")] if refused else []

        def ask(store: Any) -> Any:
            info = store.info("p")
            info.counts["applied"] = info.counts.get("applied", 0) + len(groups)
            return sorted(store.save_updates(info, every, rejected, self.now))

        (overtaken, _) = self.both(ask)
        assert overtaken == (sorted(groups) if is_late else [])
        if not overtaken:
            self.versions.update({group: self.versions.get(group, 0) + 1 for group in groups})
            self.held.update({group: set(turns) for group in groups})

    @rule(outputs=st.integers(1, 3), ms=st.integers(1, 20))
    def claim(self, outputs: int, ms: int) -> None:
        one, other = self.both(
            lambda store: sorted(store.claim(store.info("p"), 10, outputs, self.now + ms, self.now)),
            lambda claims: [
                (claim.group, claim.attempts, [output.output for output in claim.outputs], claim.lapses, claim.is_alone)
                for claim in claims
            ],
        )
        self.claims += zip(one, other, strict=True)

    @precondition(lambda self: self.claims)
    @rule(which=st.integers(0, 99), count=st.integers(0, 3), ms=st.integers(0, 5), fails=st.booleans())
    def delivered(self, which: int, count: int, ms: int, fails: bool) -> None:
        claims = dict(zip(self.stores, self.claims[which % len(self.claims)], strict=True))
        error = "no\0" if fails else None
        by_store = iter(claims.values())
        self.both(lambda store: store.delivered(2, next(by_store), count, self.now + ms, error))

    @precondition(lambda self: self.claims)
    @rule(which=st.integers(0, 99), ms=st.integers(1, 30))
    def renew(self, which: int, ms: int) -> None:
        by_store = iter(self.claims[which % len(self.claims)])
        self.both(lambda store: store.renew(2, [next(by_store)], self.now + ms))

    @rule(begun=st.dictionaries(GROUPS, st.integers(0, 2), max_size=3), ms=st.integers(1, 20))
    def begin(self, begun: dict[str, int], ms: int) -> None:
        self.both(lambda store: store.save_begun(2, begun, self.now + ms))

    @rule(groups=st.lists(GROUPS, max_size=3))
    def decide(self, groups: list[str]) -> None:
        new = [StoredDecision(f"{self.decided + index}", group, "{}") for index, group in enumerate(groups, 1)]
        self.decided += len(new)
        self.both(lambda store: store.append_decisions(2, new))

    @precondition(lambda self: self.decided)
    @rule(which=st.integers(0, 99), void=st.sampled_from(["", "void\0"]))
    def take(self, which: int, void: str) -> None:
        name = f"{which % self.decided + 1}"
        self.both(lambda store: store.save_verdicts(2, {name: void}))
        self.both(lambda store: store.verdicts(2, [name, "1", "none"]))

    @rule(ms=st.integers(1, 15))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule(group=GROUPS, turns=TURNS, limit=st.integers(1, 5), now_us=st.integers(0, 9))
    def look(self, group: str, turns: list[int], limit: int, now_us: int) -> None:
        ids = [f"t{position}" for position in turns]
        self.both(lambda store: store.names())
        self.both(lambda store: store.info("p"), lambda info: (info.about, {k: n for k, n in info.counts.items() if n}))
        self.both(lambda store: store.info("p").outputs)
        self.both(lambda store: sorted(store.records(2, ["a", "c", "x"])))
        self.both(lambda store: [store.list_groups(2, "a", limit), store.list_groups(2, "", limit, parked=True)])
        self.both(lambda store: store.summary(2))
        self.both(lambda store: store.due(2, now_us, 9), lambda due: sorted(due.items()))
        self.both(lambda store: store.begun_tasks(2, ["a", "b", "x"]))
        self.both(lambda store: [store.held(2, group), store.held(2, group, turns), store.held(2, group, None, ids)])
        self.both(lambda store: store.heads(2, [group, "a", "x"]))
        first = spot(turns[0]) if turns else (-(2**63), -(2**63), "", "")
        self.both(lambda store: [store.held_from(2, group, first, limit), store.held_longest(2, group, limit)])
        keys = [b"%s%016d" % (prefix, version) for prefix in (b"a", b"b") for version in reversed(range(limit))]
        self.both(lambda store: [store.marks(2, group, keys), store.marks(2, group, [])])
        self.both(lambda store: store.rejections(2, 0, limit), lambda rows: [rejection for _, rejection in rows])
        self.both(lambda store: [store.rejections_of(2, group, limit), store.decisions_of(2, group, limit)])
        self.both(lambda store: store.outputs_of(2, group, limit), lambda outputs: [output[1:] for output in outputs])
        self.both(lambda store: store.outputs(2, 0, 99), lambda outputs: sorted((*output[1:],) for output in outputs))
        self.both(lambda store: [store.decisions(2, limit), store.decisions(2, limit, group)])
        self.both(
            lambda store: [
                *store.pending_deliveries(2, ["a", "b"], 9),
                *store.pending_deliveries(2, None, 9),
                *store.pending_deliveries(2, None, 9, "a"),
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
