"""Whatever comes is either a call or an error of SQS, and either can be answered."""

import json
from urllib.parse import quote
from xml.etree import ElementTree as ET

from hypothesis import example, given
from hypothesis import strategies as st

from inturn.serving.http.http1 import Request
from inturn.sqs import wire
from inturn.sqs.errors import SqsError
from inturn.sqs.model import ACTIONS
from inturn.sqs.wire import Protocol

NAMES = st.sampled_from(sorted(ACTIONS))
WORDS = [
    *("QueueUrl", "Entries", "Attributes", "Attribute", "Tag", "tags", "TagKey", "MessageAttribute", "AttributeName"),
    *("SendMessageBatchRequestEntry", "Name", "Value", "Key", "DataType", "StringListValue", "BinaryValue", "member"),
    *(
        "entry",
        "key",
        "value",
        "1",
        "2",
        "01",
        "-1",
        "999999999",
        "99999999999",
        "\u0661",
        "",
        "MessageBody",
        "DelaySeconds",
    ),
]


def tried(request: Request) -> None:
    """Read it, and answer it if it cannot be read; any other exception is the test's failure."""
    protocol = wire.protocol_of(request)
    try:
        call = wire.parse(request)
    except SqsError as caught:
        error = caught
    else:
        assert call.protocol is protocol
        assert isinstance(call.params, ACTIONS[call.action].params)
        return
    response = wire.refused(protocol, error, "r")
    assert response.status == error.status == (404 if error.query_code == "UnknownOperationException" else 400)
    if protocol is Protocol.JSON:
        assert json.loads(response.body)["message"] == error.message
    else:
        tag = ET.fromstring(response.body).tag  # noqa: S314 - our own
        assert tag.endswith(error.query_code if error.status == 404 else "ErrorResponse")


@given(NAMES, st.binary(max_size=200))
def test_arbitrary_bytes_as_json_give_a_call_or_an_sqs_error(action: str, body: bytes) -> None:
    tried(Request("POST", b"/", {b"x-amz-target": b"AmazonSQS." + action.encode()}, body, ""))


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=20,
)


@given(NAMES, st.dictionaries(st.sampled_from(WORDS), _TREES, max_size=6))
def test_arbitrary_json_gives_a_call_or_an_sqs_error(action: str, tree: object) -> None:
    tried(Request("POST", b"/", {b"x-amz-target": b"AmazonSQS." + action.encode()}, json.dumps(tree).encode(), ""))


@given(st.binary(max_size=60), st.binary(max_size=20), st.binary(max_size=60))
def test_arbitrary_headers_and_targets_give_a_call_or_an_sqs_error(target: bytes, name: bytes, body: bytes) -> None:
    tried(Request("POST", target, {b"x-amz-target": name}, body, ""))
    tried(Request("GET", target, {b"content-type": name}, body, ""))


@given(NAMES, st.binary(max_size=200))
@example("PurgeQueue", b"%80")
def test_arbitrary_bytes_as_a_form_give_a_call_or_an_sqs_error(action: str, body: bytes) -> None:
    tried(Request("POST", b"/", {}, b"Action=" + action.encode() + b"&" + body, ""))


_FIELDS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), st.text(max_size=3) | st.sampled_from(["1", "-5"])
    ),
    max_size=12,
)


@given(NAMES, _FIELDS)
@example("TagQueue", [(["Tag", "1", "Key"], "a"), (["Tag", "1"], "b")])
def test_an_arbitrary_form_gives_a_call_or_an_sqs_error(action: str, fields: list[tuple[list[str], str]]) -> None:
    form = "&".join(f"{quote('.'.join(path))}={quote(value)}" for path, value in fields)
    tried(Request("POST", b"/0/q", {}, f"Action={action}&{form}".encode(), ""))
