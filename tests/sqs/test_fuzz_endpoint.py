"""Whatever comes over HTTP, the endpoint answers it in the words of SQS or of HTTP, logs no error, and goes on.

Real requests of every action, with parameters that nearly fit; then the same with bytes that were changed on their way,
in the body, in the head, in the signature. More by hand: INTURN_EXAMPLES=5000 pytest tests/sqs/test_fuzz_endpoint.py
"""

import base64
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from boto_halves import PROTOCOLS, request, service
from botocore.model import ListShape, MapShape, Shape, StructureShape
from botocore.serialize import create_serializer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import Served, answers_in, code_of
from signing import signed

from inturn.core.queue.messages import first_number
from inturn.serving.http.http1 import Request
from inturn.sqs import limits
from inturn.sqs.actions import settings as attributes
from inturn.sqs.actions.names import MessageNames
from inturn.sqs.auth import Key
from inturn.sqs.config import AccessKey, Config, ServerConfig
from inturn.sqs.model import ACTIONS
from waiting import DEADLINE_S

EXAMPLES = int(os.environ.get("INTURN_EXAMPLES", "100"))
many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
KEY = Key("all", "s1")
LINEAGE = bytes(16)
QUEUES = ("plain", "orders.fifo", "dead.fifo")
QUIET_S = 0.2
"""How long a client waits for more answers when it cannot tell whether its request has ended."""


# --- the endpoint ---


@pytest.fixture(scope="module", params=["without keys", "with keys"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    keys = (AccessKey(id=KEY.id, secret=KEY.secret),) if request.param == "with keys" else ()
    config = Config(server=ServerConfig(port=0), keys=keys)
    with pytest.MonkeyPatch.context() as patch, Served(tmp_path_factory.mktemp("fuzz") / "fuzz.db", config) as served:
        patch.setattr(limits, "RECEIVE_WAIT_S", 0)  # nobody waits for messages here
        patch.setitem(attributes._NUMBERS, "ReceiveMessageWaitTimeSeconds", (0, 0))
        patch.setattr(served.db.store, "lineage", LINEAGE)  # so that HANDLES are its own
        yield served


@pytest.fixture(autouse=True)
def _nothing_logged_before(served: Served) -> None:
    served.errors.clear()


def sent(served: Served, data: bytes) -> list[str]:
    """The codes of the answers until the server closes, as it does after a whole request."""
    received = b""
    with connected(served, DEADLINE_S) as client, suppress(ConnectionError):
        client.sendall(data)
        while piece := client.recv(65_536):
            received += piece
    return [code_of(answer) for answer in answers_in(received)]


def offer(served: Served, data: bytes) -> None:
    """Send what may be no whole request, and leave once nothing more is answered."""
    with connected(served, QUIET_S) as client, suppress(ConnectionError, TimeoutError):
        client.sendall(data)
        while client.recv(65_536):
            pass


def connected(served: Served, timeout_s: float) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", served.port), DEADLINE_S)
    client.settimeout(timeout_s)
    return client


def raw(unsigned: Request, served: Served) -> bytes:
    """A request's bytes as a client sends them, signed."""
    url = f"http://127.0.0.1:{served.port}{unsigned.target.decode()}"
    headers = {name.decode(): value.decode("latin-1") for name, value in unsigned.headers.items()}
    ready = signed(url, unsigned.body, headers, key=KEY, time_s=time.time())
    lines = [b"POST %b HTTP/1.1" % ready.target, b"Connection: close", b"Content-Length: %d" % len(ready.body)]
    lines += [b"%b: %b" % header for header in ready.headers.items() if header[0] != b"content-length"]
    return b"\r\n".join([*lines, b"", ready.body])


def as_ever(served: Served) -> None:
    """There are the queues that requests are about, whatever was done to them, and nothing went wrong."""
    for name in QUEUES:
        params = {"QueueName": name, "Attributes": {"FifoQueue": "true"} if name.endswith(".fifo") else {}}
        assert sent(served, raw(request("json", "CreateQueue", params), served)) == [""]
    assert served.errors == []


# --- requests that nearly fit ---

ARN = "arn:aws:sqs:us-east-1:000000000000:"

DOCUMENTS = [
    *("", "[]", "{}", "null", "true", "-1", "1e999", '"x"', "{", '{"Statement": ["x"]}', '{"Statement": {"Sid": 1}}'),
    json.dumps({"deadLetterTargetArn": f"{ARN}dead.fifo", "maxReceiveCount": 1}),
    json.dumps({"deadLetterTargetArn": [f"{ARN}dead.fifo"], "maxReceiveCount": {}}),
    json.dumps({"deadLetterTargetArn": f"{ARN}dead.fifo", "maxReceiveCount": "\ud800"}),
    json.dumps({"deadLetterTargetArn": f"{ARN}dead.fifo", "maxReceiveCount": 1, "\ud800": 1}),
    json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [f"{ARN}orders.fifo"]}),
    json.dumps({"redrivePermission": ["denyAll"], "sourceQueueArns": {"a": 1}}),
    json.dumps({"redrivePermission": {}}),
    "9" * 5_000,
    "[" * 200 + "]" * 200,
]
NASTY = [
    *(
        "",
        " ",
        "\0",
        "\r\n",
        "a\nb",
        "\x1b[31m",
        "\u2028",
        "\ufffe",
        "\U0001f600",
        "../../etc/passwd",
        "%0a",
        "%ed%a0%80",
    ),
    *("'; drop table inturn_queues; --", "<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>&e;", "]]>", "${7*7}"),
    *("true", "false", "0", "1", "-1", "99999999999999999999", "1e3", "All", ".*", "x" * 200),
]
NAMES = MessageNames(LINEAGE)
HANDLES = [
    NAMES.handle(first_number(queue) + 1, token, until_ms)
    for queue in (1, 2, 3)
    for token in (1, 2**63 - 1, 2**63, 2**64 - 1)
    for until_ms in (0, 2**64 - 1)
]
TEXTS = st.one_of(st.sampled_from(NASTY), st.sampled_from(DOCUMENTS), st.text(max_size=8))
URLS = [f"http://127.0.0.1/000000000000/{name}" for name in QUEUES]


def of(*usual: str) -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(usual), st.sampled_from(usual), TEXTS)


SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "QueueUrl": of(*URLS),
    "QueueName": of(*QUEUES, "other"),
    "SourceArn": of(*[ARN + name for name in QUEUES]),
    "DestinationArn": of(*[ARN + name for name in QUEUES]),
    "ReceiptHandle": of(*HANDLES),
    "DataType": of("String", "Number", "Binary", "Number.x"),
    "Id": of("1", "2", "3"),
    "MessageGroupId": of("g"),
    "MessageDeduplicationId": of("1", "2"),
    "Attributes": st.dictionaries(of(*sorted(attributes.SETTABLE)), TEXTS, max_size=3),
    "Actions": st.lists(of("SendMessage", "*"), max_size=3),
    "AWSAccountIds": st.lists(of("000000000000"), max_size=3),
}
NUMBERS = st.sampled_from([0, 1, 2, 10, -1, 11, 43_200, 2**31, 2**63, 10**30])


def values(shape: Shape, name: str = "") -> st.SearchStrategy[Any]:
    if name in SPECIAL:
        return SPECIAL[name]
    match shape:
        case StructureShape():
            parts = {name: values(member, name) for name, member in shape.members.items()}
            usual = {"QueueUrl", "QueueName", "Entries", "Id", "MessageBody", "ReceiptHandle", "SourceArn", "DataType"}
            return st.fixed_dictionaries(
                {name: part for name, part in parts.items() if name in usual},
                optional={name: part for name, part in parts.items() if name not in usual},
            )
        case ListShape():
            return st.lists(values(shape.member), max_size=3)
        case MapShape():
            return st.dictionaries(TEXTS, values(shape.value), max_size=3)
        case _:
            kinds = {"integer": NUMBERS, "long": NUMBERS, "boolean": st.booleans(), "blob": st.binary(max_size=9)}
            return kinds.get(shape.type_name, TEXTS)


def made(protocol: str, action: str) -> st.SearchStrategy[Request]:
    model = service(protocol).operation_model(action)

    def request(params: dict[str, Any]) -> Request:
        wire = create_serializer(protocol, include_validation=False).serialize_to_request(params, model)
        body = wire["body"] if protocol == "json" else urlencode(wire["body"], doseq=True).encode()
        headers = {name.lower().encode(): value.encode() for name, value in wire["headers"].items()}
        return Request("POST", b"/", headers, body, "")

    return values(model.input_shape).map(request)


REQUESTS = st.tuples(st.sampled_from(PROTOCOLS), st.sampled_from(sorted(ACTIONS))).flatmap(lambda pair: made(*pair))


@many
@given(made=REQUESTS)
@pytest.mark.thorough
def test_the_endpoint_answers_fuzzed_parameters(served: Served, made: Request) -> None:
    as_ever(served)
    codes = sent(served, raw(made, served))
    assert len(codes) == 1, codes
    as_ever(served)


# --- documents within a request ---

DEEP = 5_000


def nested(outside: str, depth: int) -> str:
    """A document with lists in lists."""
    return outside % ("[" * depth + "]" * depth)


def refused(served: Served, action: str, params: dict[str, Any]) -> str:
    """The code, the same in both protocols."""
    codes = {tuple(sent(served, raw(request(protocol, action, params), served))) for protocol in PROTOCOLS}
    assert served.errors == []
    ((code,),) = codes
    return code


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("RedrivePolicy", '{"deadLetterTargetArn": "x", "maxReceiveCount": "\\ud800"}'),
        ("RedrivePolicy", '{"deadLetterTargetArn": "x", "maxReceiveCount": 1, "\\ud800": 1}'),
        ("RedrivePolicy", '{"deadLetterTargetArn": "\\ud800", "maxReceiveCount": 1}'),
        ("RedrivePolicy", '{"deadLetterTargetArn": {}, "maxReceiveCount": 1}'),
        ("RedriveAllowPolicy", '{"redrivePermission": []}'),
        ("RedriveAllowPolicy", '{"redrivePermission": {}, "sourceQueueArns": ["x"]}'),
        ("RedriveAllowPolicy", '{"redrivePermission": "byQueue", "sourceQueueArns": [[]]}'),
        ("RedriveAllowPolicy", '{"redrivePermission": "byQueue", "sourceQueueArns": "x"}'),
        ("RedriveAllowPolicy", '{"redrivePermission": "denyAll", "\\ud800": 1}'),
        ("Policy", '{"Statement": ["x"]}'),
        ("Policy", '{"Statement": null}'),
        ("Policy", '{"Statement": "x"}'),
        ("Policy", nested('{"Statement": %s}', DEEP)),
    ],
)
def test_fuzzed_documents_in_queue_attributes_are_refused(served: Served, name: str, document: str) -> None:
    as_ever(served)
    params = {"QueueUrl": URLS[1], "Attributes": {name: document}}
    expected = "InvalidAttributeValue" if name == "Policy" else "InvalidParameterValue"
    assert refused(served, "SetQueueAttributes", params) == expected


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("RedriveAllowPolicy", '{"redrivePermission": "denyAll", "x": %s}'),
        ("RedrivePolicy", '{"deadLetterTargetArn": %s, "maxReceiveCount": 1}'),
        ("RedrivePolicy", '{"deadLetterTargetArn": "x", "maxReceiveCount": %s}'),
        ("Policy", '{"Statement": [{"Sid": %s}]}'),
    ],
)
@pytest.mark.thorough
def test_documents_nested_near_the_recursion_limit_are_answered(served: Served, name: str, document: str) -> None:
    as_ever(served)
    limit = sys.getrecursionlimit()
    for depth in (*range(limit - 80, limit + 5, 3), DEEP):
        params = {"QueueUrl": URLS[1], "Attributes": {name: nested(document, depth)}}
        (code,) = sent(served, raw(request("json", "SetQueueAttributes", params), served))
        assert code in {"", "InvalidParameterValue", "InvalidAttributeValue"}
        label = {"QueueUrl": URLS[1], "Label": "label"}
        permission = {**label, "AWSAccountIds": ["0" * 12], "Actions": ["*"]}
        assert sent(served, raw(request("json", "AddPermission", permission), served)) == [""]
        assert sent(served, raw(request("json", "RemovePermission", label), served)) == [""]
    assert code != ""
    assert served.errors == []


@pytest.mark.parametrize(
    "handle", ["[]", '{"sourceArn": []}', nested('{"taskId": "x", "sourceArn": "y", "z": %s}', DEEP), "\ud800"]
)
def test_fuzzed_move_task_handles_are_refused(served: Served, handle: str) -> None:
    params = {"TaskHandle": base64.b64encode(handle.encode(errors="surrogatepass")).decode()}
    assert refused(served, "CancelMessageMoveTask", params) == "InvalidParameterValue"


# --- bytes that are changed on their way ---

BYTES = st.one_of(
    st.binary(max_size=4),
    st.sampled_from([*b'\0\r\n"\\{}[]&=%+,:;/ \xff', *b"\r\n"]).map(lambda byte: bytes([byte])),
    st.sampled_from([b"\r\n\r\n", b"null", b"1e9", b"\\ud800", b"%00", b"%ff", b"\xed\xa0\x80", b".1.", b"Infinity"]),
)
PLACES = st.floats(0, 1)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["put", "insert", "cut", "twice", "end"]), PLACES, PLACES, BYTES), max_size=4
)


def changed(data: bytes, changes: list[tuple[str, float, float, bytes]]) -> bytes:
    for kind, first, second, piece in changes:
        start, end = sorted(round(fraction * len(data)) for fraction in (first, second))
        end = min(end, start + 30)
        match kind:
            case "put":
                data = data[:start] + piece + data[start + len(piece) :]
            case "insert":
                data = data[:start] + piece + data[start:]
            case "cut":
                data = data[:start] + data[end:]
            case "twice":
                data = data[:end] + data[start:]
            case _:
                data = data[:start]
    return data


@many
@given(made=REQUESTS, changes=CHANGES)
@pytest.mark.thorough
def test_the_endpoint_answers_requests_with_mutated_bodies(served: Served, made: Request, changes: list[Any]) -> None:
    as_ever(served)
    codes = sent(served, raw(made._replace(body=changed(made.body, changes)), served))
    assert len(codes) == 1, codes
    as_ever(served)


@many
@given(made=REQUESTS, changes=CHANGES)
@pytest.mark.thorough
def test_the_endpoint_survives_mutated_requests(served: Served, made: Request, changes: list[Any]) -> None:
    as_ever(served)
    offer(served, changed(raw(made, served), changes))
    as_ever(served)


SIGNED = [b"authorization", b"x-amz-date", b"host", b"x-amz-target", b"content-type"]


@many
@given(made=REQUESTS, name=st.sampled_from(SIGNED), changes=CHANGES.filter(bool))
@pytest.mark.thorough
def test_the_endpoint_answers_mutated_signed_headers(
    served: Served, made: Request, name: bytes, changes: list[Any]
) -> None:
    as_ever(served)
    head, _, body = raw(made, served).partition(b"\r\n\r\n")
    lines = [changed(line, changes) if line.lower().startswith(name + b":") else line for line in head.split(b"\r\n")]
    data = b"\r\n".join(lines) + b"\r\n\r\n" + body
    if b"\r\n\r\n" in b"".join(lines):
        offer(served, data)
    else:
        codes = sent(served, data)
        assert len(codes) >= 1, codes
    as_ever(served)
