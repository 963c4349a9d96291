"""Policies of queues: parsed and checked once, evaluated for each request, without I/O.

The language is IAM's, https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html; principals are
access keys and their accounts. If a statement cannot be evaluated, an allowing one grants nothing, and a denying one
applies.
"""

import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from inturn.core import limits as core_limits
from inturn.sqs import limits
from inturn.sqs.auth.conditions import Facts, Test, Truth, all_of, any_of, compiled, glob, opposite
from inturn.sqs.model import ACTIONS

OWNERS_ONLY: Final = frozenset(
    (
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "ListQueues",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    )
)
"""Actions that a policy cannot allow to other accounts, as in SQS."""

_VERSIONS: Final = ("2012-10-17", "2008-10-17")
_PARTS: Final = {"Version", "Id", "Statement"}
_ELEMENTS: Final = {
    "Sid",
    "Effect",
    "Principal",
    "NotPrincipal",
    "Action",
    "NotAction",
    "Resource",
    "NotResource",
    "Condition",
}
_STRANGERS: Final = {"Service", "Federated", "CanonicalUser"}
"""Kinds of principals that match no access key."""
_PRINCIPAL: Final = re.compile(
    r"(?:(?P<number>\d{12})|arn:[a-z-]+:(?:iam|sts)::(?P<account>\d{12}):"
    r"(?:root|(?:user|role|federated-user)/(?P<key>[^*?]+)|assumed-role/(?P<role>[^*?/]+)/[^*?]+))"
)
_ACTION: Final = re.compile(r"\*|[a-z0-9*?-]+:[A-Za-z0-9*?]+", re.IGNORECASE)
_KNOWN_ACTIONS: Final = frozenset(action.lower() for action in ACTIONS)


class PolicyError(ValueError):
    """A malformed policy; the text names the place and the expected value."""


class PolicyDecision(Enum):
    """A policy's decision about a request."""

    ALLOWED = "allowed"
    DENIED = "denied"
    """A statement denies it; allowing statements do not matter."""
    NEITHER = "neither"


class PolicyRequest(NamedTuple):
    """A request in the form that policies evaluate.

    The actions are its names in lower case, as in ``sqs:sendmessage``; a batch also has that of its single form. The
    resource is the queue's ARN.
    """

    account: str
    key_id: str
    actions: tuple[str, ...]
    resource: str
    facts: Facts


_Match: TypeAlias = Callable[[PolicyRequest], Truth]


class _Statement(NamedTuple):
    """A statement; it applies if all of its tests are true."""

    denies: bool
    tests: tuple[_Match, ...]


class Policy:
    """A parsed policy; each statement is evaluated independently."""

    def __init__(self, statements: tuple[_Statement, ...]) -> None:
        self._denying = [statement.tests for statement in statements if statement.denies]
        self._allowing = [statement.tests for statement in statements if not statement.denies]

    def decide(self, request: PolicyRequest) -> PolicyDecision:
        """Decide about a request; a denying statement wins."""
        if any(all_of(test(request) for test in tests) is not False for tests in self._denying):
            return PolicyDecision.DENIED
        if any(all_of(test(request) for test in tests) is True for tests in self._allowing):
            return PolicyDecision.ALLOWED
        return PolicyDecision.NEITHER


def parse(text: str) -> Policy:
    """Parse a policy; a malformed one raises :class:`PolicyError`."""
    size = len(text.encode())
    if size > limits.POLICY_BYTES:
        raise PolicyError(f"the policy has {size} bytes; at most {limits.POLICY_BYTES} are allowed.")
    document = _document(text)
    unknown = sorted(document.keys() - _PARTS)
    if unknown:
        raise PolicyError(
            f"the policy has the unknown element {_shown(unknown[0])}; expected Version, Id and Statement."
        )
    version = document.get("Version", _VERSIONS[0])
    if version not in _VERSIONS:
        raise PolicyError(f"Version is {_shown(version)}; expected {' or '.join(_VERSIONS)}.")
    if not isinstance(document.get("Id", ""), str):
        raise PolicyError(f"Id is {_shown(document['Id'])}; expected a string.")
    if "Statement" not in document:
        raise PolicyError("the policy has no Statement.")
    return Policy(tuple(_statement(number, statement) for number, statement in enumerate(_statements(document), 1)))


@lru_cache(limits.POLICIES)
def stored(text: str) -> Policy:
    """Return the parsed form of a stored policy, which an earlier version may have accepted unchecked.

    A malformed statement grants nothing if it allows; any other denies everything.
    """
    try:
        return parse(text)
    except PolicyError:
        pass
    try:
        raw = _statements(_document(text))
    except PolicyError:
        return Policy((_Statement(denies=True, tests=()),))
    return Policy(tuple(_parsed_leniently(statement) for statement in raw))


def unmatched_resources(text: str) -> list[str]:
    """Return the resources in a policy that match nothing, since they are not ARNs."""
    try:
        parts = [statement for statement in _statements(_document(text)) if isinstance(statement, dict)]
    except PolicyError:
        return []
    values = [part[name] for part in parts for name in ("Resource", "NotResource") if name in part]
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    return [text for text in texts if isinstance(text, str) and _is_unmatched(text)]


def _parsed_leniently(raw: object) -> _Statement:
    try:
        return _read_statement(raw)
    except PolicyError:
        allows = isinstance(raw, dict) and raw.get("Effect") == "Allow"
        return _Statement(denies=not allows, tests=(lambda _asked: None,))


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise PolicyError(f"{_shown(text)} is not a JSON object.")
    return document


def _statements(document: Mapping[str, Any]) -> list[object]:
    statements = document.get("Statement", [])
    return statements if isinstance(statements, list) else [statements]


# --- statements ---


def _statement(number: int, raw: object) -> _Statement:
    try:
        return _read_statement(raw)
    except PolicyError as error:
        raise PolicyError(f"Statement {number}: {error}") from None


def _read_statement(raw: object) -> _Statement:
    if not isinstance(raw, dict):
        raise PolicyError(f"{_shown(raw)} is not a JSON object.")
    unknown = sorted(raw.keys() - _ELEMENTS)
    if unknown:
        raise PolicyError(f"unknown element {_shown(unknown[0])}; expected {', '.join(sorted(_ELEMENTS))}.")
    if not isinstance(raw.get("Sid", ""), str):
        raise PolicyError(f"Sid is {_shown(raw['Sid'])}; expected a string.")
    effect = raw.get("Effect")
    if effect not in ("Allow", "Deny"):
        raise PolicyError(f"Effect is {_shown(effect)}; expected 'Allow' or 'Deny'.")
    tests = [_either(raw, name, test) for name, test in _READ.items()]
    if "Condition" in raw:
        tests.append(_conditions(raw["Condition"]))
    return _Statement(effect == "Deny", tuple(tests))


def _either(raw: Mapping[str, Any], name: str, read: Callable[[str, Any], _Match]) -> _Match:
    """Read an element, or its form with ``Not`` before the name."""
    present = [key for key in (name, f"Not{name}") if key in raw]
    if len(present) != 1:
        problem = "has both" if present else "has neither"
        raise PolicyError(
            f"the statement {problem} {name} {'and' if present else 'nor'} Not{name}; expected one of them."
        )
    test = read(present[0], raw[present[0]])
    return test if present[0] == name else lambda request: opposite(test(request))


def _principals(element: str, value: Any) -> _Match:
    if value == "*":
        return lambda _asked: True
    if not isinstance(value, dict) or not value:
        raise PolicyError(f"{element} is {_shown(value)}; expected '*' or an object such as {{\"AWS\": …}}.")
    unknown = sorted(value.keys() - _STRANGERS - {"AWS"})
    if unknown:
        raise PolicyError(
            f"{element} has the unknown kind {_shown(unknown[0])}; expected AWS, {', '.join(sorted(_STRANGERS))}."
        )
    for kind in value:
        _texts(f"{element}.{kind}", value[kind])
    names = _texts(f"{element}.AWS", value["AWS"]) if "AWS" in value else ()
    tests = [_principal(element, name) for name in names]
    return lambda request: any(test(request) for test in tests)


def _principal(element: str, value: str) -> Callable[[PolicyRequest], bool]:
    if value == "*":
        return lambda _asked: True
    match = _PRINCIPAL.fullmatch(value)
    if match is None:
        forms = "'*', an account of 12 digits, or arn:aws:iam::ACCOUNT:root, …:user/KEY or …:role/KEY"
        raise PolicyError(f"{element} names {_shown(value)}; expected {forms}.")
    account, key_id = match["number"] or match["account"], match["key"] or match["role"]
    return lambda request: request.account == account and key_id in (None, request.key_id)


def _actions(element: str, value: Any) -> _Match:
    matchers = []
    for text in _texts(element, value):
        vendor, _, action = text.lower().partition(":")
        if _ACTION.fullmatch(text) is None:
            raise PolicyError(f"{element} names {_shown(text)}; expected '*' or an action such as 'sqs:SendMessage'.")
        if vendor == "sqs" and not {"*", "?"}.intersection(action) and action not in _KNOWN_ACTIONS:
            raise PolicyError(f"{element} names {_shown(text)}, which is not an SQS action.")
        matchers.append(glob(text.lower()))
    return lambda request: any(matches(name) for matches in matchers for name in request.actions)


def _resources(element: str, value: Any) -> _Match:
    texts = [text for text in _texts(element, value) if not _is_unmatched(text)]
    matchers = [None if "${" in text else glob(text) for text in texts]
    return lambda request: any_of(None if matches is None else matches(request.resource) for matches in matchers)


def _is_unmatched(resource: str) -> bool:
    """Return whether a resource has a form that cannot match: as in SQS it is kept, and matches nothing."""
    return resource != "*" and not resource.startswith("arn:") and "${" not in resource


_READ: Final = {"Principal": _principals, "Action": _actions, "Resource": _resources}


def _conditions(value: Any) -> _Match:
    tests: list[Test] = []
    for name, keys in _object("Condition", value).items():
        for key, values in _object(f"Condition.{name}", keys).items():
            texts = [_scalar(item) for item in (values if isinstance(values, list) else [values])]
            if not texts or None in texts:
                raise PolicyError(
                    f"Condition.{name} has {_shown(values)} for {_shown(key)}; expected a string or a list."
                )
            try:
                tests.append(compiled(name, key, [text for text in texts if text is not None]))
            except ValueError as error:
                text = _shown(error.args[0])
                raise PolicyError(f"Condition.{name} cannot have the value {text} for {_shown(key)}.") from None
    return lambda request: all_of(test(request.facts) for test in tests)


def _object(element: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PolicyError(f"{element} is {_shown(value)}; expected a JSON object.")
    return value


def _scalar(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _texts(element: str, value: Any) -> list[str]:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise PolicyError(f"{element} is {_shown(value)}; expected a string or a list of strings.")
    return texts


def _shown(value: object) -> str:
    try:
        text = repr(value) if isinstance(value, str) else json.dumps(value)
    except RecursionError:
        text = "nested too deeply"
    return text if len(text) <= core_limits.SHOWN_LENGTH else f"{text[: core_limits.SHOWN_LENGTH]}…"
