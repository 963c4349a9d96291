"""What a message may be: what does not fit is refused in words before it is sent."""

import json
from typing import Any

import pytest

from inturn.core import limits
from inturn.core.errors import InputError
from inturn.queue import draft


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"revision": "7"}, "revision is '7'; expected a whole number"),
        ({"revision": 1.5}, "revision is 1.5"),
        ({"revision": True}, "revision is True"),
        ({"revision": 2**63}, "at most 64 bits"),
        ({"delay_s": "5"}, "delay_s is '5'; expected a number of seconds"),
        ({"delay_s": True}, "delay_s is True"),
        ({"delay_s": float("nan")}, "delay_s is nan"),
        ({"delay_s": -1}, "delay_s is -1"),
        ({"attributes": "a=1"}, "attributes is 'a=1'; expected a dict"),
        ({"attributes": [1]}, "attributes is [1]"),
        ({"attributes": {"at": object()}}, "it is not JSON"),
        ({"group": 1.5}, "invalid group 1.5"),
        ({"group": ""}, "group is ''; expected a text of 1 to 1000 characters"),
        ({"group": "\ud800"}, "group is '\\ud800', with an unpaired surrogate at index 0"),
        ({"dedup_id": 5}, "dedup_id is 5; expected a text"),
        ({"body": "a\udc00"}, "body is 'a\\udc00', with an unpaired surrogate at index 1"),
        ({"body": object()}, "it is not JSON"),
        ({"body": "x" * (limits.BODY_BYTES + 1)}, "at most 1,048,576 are allowed"),
    ],
)
def test_draft_refuses_invalid_arguments(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as raised:
        draft(**{"body": "x", **wrong})
    assert words in str(raised.value)


def test_draft_keeps_valid_arguments() -> None:
    message = draft({"n": 2**70}, group=7, revision=-(2**63) + 1, dedup_id="ü", delay_s=0.5, attributes={"a": [1]})
    assert (json.loads(message.body), message.group, message.dedup_id, message.delay_ms) == (
        {"n": 2**70},
        "7",
        "ü",
        500,
    )
    assert (message.revision, message.attributes) == (-limits.REVISION, '{"a":[1]}')
