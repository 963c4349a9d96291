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
    found: Counter[str] = Counter()
    came: defaultdict[str, dict[Any, list[Any]]] = defaultdict(dict)
    for message in log:
        if message[group] is None:
            found["no-group"] += 1
            continue
        own, at = came[message[group]], message[place]
        says = tuple(message[name] for name in content)
        if at not in own:
            found["late"] += bool(own) and at < max(own)
            own[at] = [says]
        elif says in own[at]:
            found["duplicate"] += 1
        else:
            found["rival"] += 1
            own[at].append(says)
    if not all(isinstance(at, int) for own in came.values() for at in own):
        return found, set()
    return found, {(name, at) for name, own in came.items() for at in range(min(own), max(own)) if at not in own}
