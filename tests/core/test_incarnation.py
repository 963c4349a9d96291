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
    copies = {0: Copy([f"of an older version {number}" for number in range(before)])}
    places: list[tuple[QueuePosition, list[str]]] = []
    for index, (act, chosen, number) in enumerate(steps):
        take(copies, places, act, chosen % len(copies), number, f"i{index}")
        for copy in copies.values():
            for place, seen in places:
                given_in = incarnation_of(copy.history, place.sequence_number)
                assert is_valid(place, given_in, len(copy.messages)) == (copy.messages[: place.sequence_number] == seen)
            assert len(copy.history) <= len(copy.messages) + 1
            assert copy.history == sorted(copy.history)


def take(
    copies: dict[int, Copy], places: list[tuple[QueuePosition, list[str]]], act: str, chosen: int, number: int, new: str
) -> None:
    copy = copies[chosen]
    match act:
        case "open":
            copy.opened = new
        case "send":
            copy.opened = copy.opened or new
            copy.history = begin(copy.history, len(copy.messages), copy.opened)
            copy.messages += [f"{new}.{index}" for index in range(number)]
        case "copy":  # nobody has the copy open
            copies[len(copies)] = Copy([*copy.messages], [*copy.history])
        case "put back":  # in the place of the first
            copies[0] = Copy([*copy.messages], [*copy.history])
        case "lose":  # the last moments before a power failure
            copy.messages = copy.messages[: max(0, len(copy.messages) - number)]
            copy.history, copy.opened = [start for start in copy.history if start.after <= len(copy.messages)], ""
        case "remember":
            position = min(number, len(copy.messages))
            places.append((QueuePosition(position, incarnation_of(copy.history, position)), copy.messages[:position]))


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc")), max_size=10))
def test_each_sequence_number_begins_at_most_one_incarnation(sent: list[tuple[int, str]]) -> None:
    history: list[IncarnationStart] = []
    last = 0
    for count, incarnation in sent:
        history = begin(history, last, incarnation)
        last += count
    assert len({start.after for start in history}) == len(history)
    assert incarnation_of(history, 0) == ORIGIN


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(0, 40), st.integers(1, 5))
def test_trim_keeps_incarnations_that_readers_need(sent: list[int], read_to: int, most: int) -> None:
    history: list[IncarnationStart] = []
    last = 0
    for number, count in enumerate(sent):
        history = begin(history, last, f"i{number}")
        last += count
    trimmed = trim(history, read_to, most)
    assert trimmed[-most:] == history[-most:]
    for number in range(read_to, last + 2):
        assert incarnation_of(trimmed, number) == incarnation_of(history, number)
    assert len(trimmed) <= max(most, sum(start.after >= read_to for start in history) + 1)


def test_a_position_without_an_incarnation_is_valid_up_to_the_last_message() -> None:
    assert is_valid(QueuePosition(5), "a", 5)
    assert not is_valid(QueuePosition(6), "a", 5)
