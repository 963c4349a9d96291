"""Conditions of policy statements: compiled once, evaluated for each request, without I/O.

A condition is true, false, or cannot be evaluated (None): its key or its operator is not among those below, or its
value has a policy variable. https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition.html
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from fnmatch import translate
from ipaddress import ip_address, ip_network
from typing import Final, TypeAlias

Truth: TypeAlias = bool | None
"""The result of a condition; None: it cannot be evaluated."""

Facts: TypeAlias = Mapping[str, str | None]
"""The condition keys of a request in lower case, with their values; None: a key that is known to be absent."""

Test: TypeAlias = Callable[[Facts], Truth]
_Matcher: TypeAlias = Callable[[str], bool]

ABSENT: Final = ("aws:sourcearn", "aws:sourceaccount")
"""Keys that are present only where a service calls for a resource of its own, which never happens here."""


def facts_of(*, account: str, key_id: str, address: str, is_secure: bool, now: float) -> Facts:
    """Return the condition keys of a request by the key of an account, at a time in seconds since 1970."""
    return dict.fromkeys(ABSENT) | {
        "aws:currenttime": datetime.fromtimestamp(now, UTC).isoformat(),
        "aws:epochtime": str(now),
        "aws:principalaccount": account,
        "aws:principalarn": f"arn:aws:iam::{account}:user/{key_id}",
        "aws:securetransport": "true" if is_secure else "false",
        "aws:sourceip": address,
        "aws:username": key_id,
    }


def all_of(truths: Iterable[Truth]) -> Truth:
    """Return whether all are true; a single false decides, even if others cannot be evaluated."""
    known: Truth = True
    for truth in truths:
        if truth is False:
            return False
        if truth is None:
            known = None
    return known


def any_of(truths: Iterable[Truth]) -> Truth:
    """Return whether one is true; a single true decides, even if others cannot be evaluated."""
    return opposite(all_of(map(opposite, truths)))


def opposite(truth: Truth) -> Truth:
    """Return the negation; None stays None."""
    return None if truth is None else not truth


def glob(pattern: str) -> _Matcher:
    """Return a matcher of whole texts: ``*`` matches any characters, ``?`` matches one."""
    matches = re.compile(translate(pattern.replace("[", "[[]"))).match
    return lambda text: matches(text) is not None


# --- operators ---


def _arn(pattern: str) -> _Matcher:
    """Return a matcher that matches each of an ARN's six parts separately."""
    if pattern == "*":
        return lambda _text: True
    parts = pattern.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn":
        raise ValueError
    matchers = [glob(part) for part in parts]

    def matches(text: str) -> bool:
        parts = text.split(":", 5)
        return len(parts) == 6 and all(match_part(part) for match_part, part in zip(matchers, parts, strict=True))

    return matches


def _boolean(value: str) -> _Matcher:
    expected = value.lower()
    if expected not in {"true", "false"}:
        raise ValueError
    return lambda text: text.lower() == expected


def _network(value: str) -> _Matcher:
    network = ip_network(value, strict=False)

    def holds(text: str) -> bool:
        address = ip_address(text)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address) in network

    return holds


def _number(text: str) -> float:
    return float(text)


def _moment(text: str) -> float:
    """Return a time in seconds since 1970, from ISO 8601 or a number."""
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _compared(read: Callable[[str], float], compare: Callable[[float, float], bool]) -> Callable[[str], _Matcher]:
    def matcher(value: str) -> _Matcher:
        bound = read(value)
        return lambda text: compare(read(text), bound)

    return matcher


def _ignoring_case(value: str) -> _Matcher:
    expected = value.casefold()
    return lambda text: text.casefold() == expected


_ORDERS: Final = {
    "Equals": operator.eq,
    "LessThan": operator.lt,
    "LessThanEquals": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanEquals": operator.ge,
}
_MATCHERS: Final[dict[str, Callable[[str], _Matcher]]] = {
    "ArnEquals": _arn,
    "ArnLike": _arn,
    "Bool": _boolean,
    "IpAddress": _network,
    "StringEquals": lambda value: value.__eq__,
    "StringEqualsIgnoreCase": _ignoring_case,
    "StringLike": glob,
    **{f"Date{name}": _compared(_moment, compare) for name, compare in _ORDERS.items()},
    **{f"Numeric{name}": _compared(_number, compare) for name, compare in _ORDERS.items()},
}
_OPPOSITES: Final = {
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
    "DateNotEquals": "DateEquals",
    "NotIpAddress": "IpAddress",
    "NumericNotEquals": "NumericEquals",
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
}


def _never_known(_facts: Facts) -> Truth:
    return None


def compiled(name: str, key: str, values: Iterable[str]) -> Test:
    """Compile a condition: one operator with one key.

    Args:
        name: of the operator, as in ``StringEquals`` or ``ArnLikeIfExists``.
        key: the condition key, in any case.
        values: the values, of which one must match; for a negated operator none may.

    Raises:
        ValueError: if the operator does not accept a value; its argument is the value.
    """
    key = key.lower()
    if name == "Null":
        expected = _compiled_each(values, _boolean)
        return lambda facts: None if key not in facts else _matched(expected, str(facts[key] is None))
    base = name.removesuffix("IfExists")
    is_negated = base in _OPPOSITES
    matcher = _MATCHERS.get(_OPPOSITES.get(base, base))
    if matcher is None:
        return _never_known
    matchers = _compiled_each(values, matcher)
    without = is_negated or base != name  # the result if the key is absent

    def test(facts: Facts) -> Truth:
        if key not in facts:
            return None
        value = facts[key]
        if value is None:
            return without
        truth = _matched(matchers, value)
        return opposite(truth) if is_negated else truth

    return test


def _compiled_each(values: Iterable[str], matcher: Callable[[str], _Matcher]) -> list[_Matcher | None]:
    """Compile each value; None: it has a policy variable, which cannot be evaluated."""
    compiled: list[_Matcher | None] = []
    for value in values:
        try:
            compiled.append(None if "${" in value else matcher(value))
        except ValueError:
            raise ValueError(value) from None
    return compiled


def _matched(matchers: Iterable[_Matcher | None], text: str) -> Truth:
    return any_of(None if matcher is None else _matches_safely(matcher, text) for matcher in matchers)


def _matches_safely(matches: _Matcher, text: str) -> Truth:
    try:
        return matches(text)
    except ValueError:  # the key is of another type than the operator: NumericEquals with aws:SourceIp
        return None
