"""What an audit must find, counted the slow way: one message after the other, in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any


def expected(log: Iterable[dict[str, Any]], group: str, place: str, *content: str) -> tuple[Counter[str], set[Any]]:
    """The faults of a log without resets, by kind, and the revisions that are missing between those that came.

    Args:
        log: the messages in the order of arrival.
        group: the field that names the group.
        place: the field with the place in the order.
        content: the fields that make two messages the same.
    """
    faults: Counter[str] = Counter()
    groups: defaultdict[str, dict[Any, list[Any]]] = defaultdict(dict)
    for message in log:
        if message[group] is None:
            faults["no-group"] += 1
            continue
        own, position = groups[message[group]], message[place]
        says = tuple(message[name] for name in content)
        if position not in own:
            faults["late"] += bool(own) and position < max(own)
            own[position] = [says]
        elif says in own[position]:
            faults["duplicate"] += 1
        else:
            faults["rival"] += 1
            own[position].append(says)
    if not all(isinstance(revision, int) for own in groups.values() for revision in own):
        return faults, set()
    return faults, {
        (name, revision)
        for name, own in groups.items()
        for revision in range(min(own), max(own))
        if revision not in own
    }
