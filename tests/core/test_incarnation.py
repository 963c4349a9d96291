"""Which remembered places are valid, over histories of copies that go on apart.

The model knows what the rule must not look at: for each number the very message that was given it.
"""

from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from inturn.core.queue.incarnation import ORIGIN, IncarnationStart, QueuePosition, begin, incarnation_of, is_valid, trim


@dataclass
class Copy:
    """One file: its messages, and what is written of its incarnations; ``opened`` is the id of who has it open."""

    messages: list[str] = field(default_factory=list)
    history: list[IncarnationStart] = field(default_factory=list)
    opened: str = ""


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "send", "copy", "put back", "remember", "lose"]), st.integers(0, 3), st.integers(0, 9)
    ),
    max_size=40,
)


@given(STEPS, st.integers(0, 3))
@example([("send", 0, 2), ("copy", 0, 1), ("send", 0, 1), ("remember", 0, 0), ("open", 1, 0), ("send", 1, 5)], 0)
@example([("send", 0, 0), ("remember", 0, 0), ("lose", 0, 1), ("send", 0, 3)], 0)
@example(
    [
        ("open", 0, 0),
        ("send", 0, 1),
        ("copy", 0, 1),
        ("send", 0, 2),
        ("remember", 0, 0),
        ("put back", 1, 0),
        ("send", 0, 4),
    ],
    0,
)
def test_a_position_is_valid_if_all_earlier_messages_are_unchanged(steps: list[Step], before: int) -> None:
    copies = {0: Copy([f"of an older version {each}" for each in range(before)])}
    places: list[tuple[QueuePosition, list[str]]] = []
    for made, (act, which, number) in enumerate(steps):
        take(copies, places, act, which % len(copies), number, f"i{made}")
        for each in copies.values():
            for place, seen in places:
                given_in = incarnation_of(each.history, place.sequence_number)
                assert is_valid(place, given_in, len(each.messages)) == (each.messages[: place.sequence_number] == seen)
            assert len(each.history) <= len(each.messages) + 1
            assert each.history == sorted(each.history)


def take(
    copies: dict[int, Copy], places: list[tuple[QueuePosition, list[str]]], act: str, which: int, number: int, new: str
) -> None:
    here = copies[which]
    match act:
        case "open":
            here.opened = new
        case "send":
            here.opened = here.opened or new
            here.history = begin(here.history, len(here.messages), here.opened)
            here.messages += [f"{new}.{each}" for each in range(number)]
        case "copy":  # nobody has the copy open
            copies[len(copies)] = Copy([*here.messages], [*here.history])
        case "put back":  # in the place of the first
            copies[0] = Copy([*here.messages], [*here.history])
        case "lose":  # the last moments before a power failure
            here.messages = here.messages[: max(0, len(here.messages) - number)]
            here.history, here.opened = [each for each in here.history if each.after <= len(here.messages)], ""
        case "remember":
            at = min(number, len(here.messages))
            places.append((QueuePosition(at, incarnation_of(here.history, at)), here.messages[:at]))


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), max_size=10))
def test_each_sequence_number_begins_at_most_one_incarnation(sent: list[tuple[int, str]]) -> None:
    history: list[IncarnationStart] = []
    last = 0
    for count, incarnation in sent:
        history = begin(history, last, incarnation)
        last += count
    assert len({each.after for each in history}) == len(history)
    assert incarnation_of(history, 0) == ORIGIN


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(0, 40), st.integers(1, 5))
def test_trim_keeps_incarnations_that_readers_need(sent: list[int], read_to: int, most: int) -> None:
    history: list[IncarnationStart] = []
    last = 0
    for number, count in enumerate(sent):
        history = begin(history, last, f"i{number}")
        last += count
    kept = trim(history, read_to, most)
    assert kept[-most:] == history[-most:]
    for number in range(read_to, last + 2):
        assert incarnation_of(kept, number) == incarnation_of(history, number)
    assert len(kept) <= max(most, sum(each.after >= read_to for each in history) + 1)


def test_a_position_without_an_incarnation_is_valid_up_to_the_last_message() -> None:
    assert is_valid(QueuePosition(5), "a", 5)
    assert not is_valid(QueuePosition(6), "a", 5)
