"""What goes in comes out: botocore makes the requests and reads the answers, of every action, in both protocols."""

from typing import Any

import msgspec
import pytest
from boto_halves import PROTOCOLS, lean, plain, read, request, service, trees
from hypothesis import given, settings
from hypothesis import strategies as st

from inturn.sqs import errors, wire
from inturn.sqs.model import ACTIONS, Shape
from inturn.sqs.wire import Protocol

ID = "5b6f0d27-0000-4000-8000-2f1e6d1c2b3a"
EVERY = pytest.mark.parametrize("action", sorted(ACTIONS))
BOTH = pytest.mark.parametrize("protocol", PROTOCOLS)
XML = st.characters(
    exclude_categories=["Cs"], exclude_characters=[*map(chr, {*range(32)} - {9, 10, 13}), "\ufffe", "\uffff"]
)


@EVERY
@BOTH
@settings(max_examples=25)
@given(data=st.data())
@pytest.mark.thorough
def test_a_request_made_by_botocore_is_parsed_unchanged(protocol: str, action: str, data: st.DataObject) -> None:
    params: dict[str, Any] = data.draw(trees(service("json").operation_model(action).input_shape, st.text(max_size=20)))
    if protocol == "query":
        params = {name: value for name, value in params.items() if value != {}}
    path = "/" if action in {"CreateQueue", "ListQueues"} else "/000000000000/orders"
    call = wire.parse(request(protocol, action, params, f"{path}?x=1".encode()))
    assert (call.protocol, call.action) == (Protocol(protocol), action)
    assert isinstance(call.params, ACTIONS[action].params)
    assert plain(call.params) == lean(params)


@EVERY
@BOTH
@settings(max_examples=25)
@given(data=st.data())
@pytest.mark.thorough
def test_a_response_is_parsed_unchanged_by_botocore(protocol: str, action: str, data: st.DataObject) -> None:
    shape = service("json").operation_model(action).output_shape
    tree = {} if shape is None else data.draw(trees(shape, st.text(XML, max_size=20)))
    answer: Shape = msgspec.convert(tree, type=ACTIONS[action].answer)
    call = wire.ApiCall(Protocol(protocol), action, answer)
    parsed = read(protocol, action, wire.answered(call, answer, ID))
    about = parsed.pop("ResponseMetadata")
    assert lean(parsed) == lean(tree)
    assert about["RequestId"] == ID
    assert about["HTTPStatusCode"] == 200


@BOTH
@given(text=st.text(XML, max_size=20))
def test_an_error_is_parsed_unchanged_by_botocore(protocol: str, text: str) -> None:
    response = wire.refused(Protocol(protocol), errors.purge_queue_in_progress(text), ID)
    parsed = read(protocol, "PurgeQueue", response)
    assert parsed["Error"]["Code"] == "AWS.SimpleQueueService.PurgeQueueInProgress"
    assert parsed["Error"]["Type"] == "Sender"
    assert parsed["Error"]["Message"] == f"Only one PurgeQueue operation on {text} is allowed every 60 seconds."
    assert parsed["ResponseMetadata"]["RequestId"] == ID
    assert parsed["ResponseMetadata"]["HTTPStatusCode"] == 403


@pytest.mark.parametrize(
    ("headers", "protocol"),
    [
        ({}, Protocol.QUERY),
        ({b"content-type": b"application/x-www-form-urlencoded; charset=utf-8"}, Protocol.QUERY),
        ({b"content-type": b"application/x-amz-json-1.0"}, Protocol.JSON),
        ({b"content-type": b"application/x-amz-json-1.1"}, Protocol.JSON),
        ({b"x-amz-target": b"AmazonSQS.SendMessage"}, Protocol.JSON),
        ({b"x-amz-target": b"", b"content-type": b"text/plain"}, Protocol.JSON),
    ],
)
def test_the_protocol_of_a_malformed_request_is_detected(headers: dict[bytes, bytes], protocol: Protocol) -> None:
    assert wire.protocol_of(wire.json.Request("POST", b"/", headers, b"", "")) is protocol
