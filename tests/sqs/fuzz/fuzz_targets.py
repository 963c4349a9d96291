"""What the fuzzer calls with any bytes: each function fails if what the endpoint makes of them breaks a promise.

They need no atheris, so the tests call them too, with the seeds and with every input that once found something.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from unittest.mock import patch
from urllib.parse import quote_from_bytes
from xml.etree import ElementTree as ET

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from inturn.ingest import DebeziumMapping, MappingError, MessageMapping, SourceRecord
from inturn.ingest import limits as source_limits
from inturn.serving.http import limits
from inturn.serving.http.http1 import Request, RequestLimits, RequestReader
from inturn.sqs import wire
from inturn.sqs.auth import Key, Verifier
from inturn.sqs.auth.canonical import canonical_path, canonical_query, pairs
from inturn.sqs.errors import SqsError
from inturn.sqs.model import ACTIONS

_LIMITS = RequestLimits(header_bytes=400, headers=8, body_bytes=300)
_NOW = 1_700_000_000.0
_MAPPINGS = [
    message_mapping.compiled()
    for message_mapping in (
        MessageMapping(group="body.a", revision="body.r", id="body.i", body="body.b"),
        MessageMapping(group="key.a", revision="headers.revision", id="headers.id"),
        MessageMapping(group="body.a.'b.c'", revision="body.r", id="headers.id.a", ranks={"x": 1}),
        MessageMapping(group="key", revision="headers.revision", format="text"),
        DebeziumMapping(),
        DebeziumMapping(group="a", revision="position", id="headers.id"),
    )
]
_KEY = Key("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")


def http(data: bytes) -> None:
    """Bytes of a connection: however they are cut, the same requests come of them, and the bounds hold."""
    with patch.object(limits, "BLOCK_BYTES", 16):
        _read(*((data[0], data[1:]) if data else (0, b"")))


def query(data: bytes) -> None:
    """A form, in the target up to the first line feed and in the body after it: a call, or an error of SQS."""
    target, _, body = data.partition(b"\n")
    for method in ("GET", "POST"):
        for headers in ({}, {b"accept": b"application/json"}):
            _told(Request(method, b"/?" + target, headers, body, ""))


def json_body(data: bytes) -> None:
    """The name of an action up to the first line feed, and a JSON body after it: a call, or an error of SQS."""
    name, _, body = data.partition(b"\n")
    _told(Request("POST", b"/", {b"x-amz-target": b"AmazonSQS." + name}, body, ""))


def signature(data: bytes) -> None:
    """Headers and target of anybody are refused in the words of SQS; what botocore signs is accepted as it was sent."""
    parts = data.split(b"\n", 5)
    path, rest, authorization, date, names, body = (*parts, *[b""] * (6 - len(parts)))
    verifier = Verifier([_KEY])
    hostile = {b"host": b"a", b"authorization": authorization, b"x-amz-date": date, b"date": names}
    for headers in (hostile, {b"host": b"a"}):
        _unauthentic(verifier, Request("POST", path + b"?" + rest, headers, body, ""))
    assert canonical_path(path).startswith(b"/")
    assert canonical_query(canonical_query(rest)) == canonical_query(rest)
    assert sorted(pairs(canonical_query(rest))) == sorted(pairs(rest))
    _signed_by_botocore(verifier, path, rest, date + names, body)


def mapping(data: bytes) -> None:
    """A key, two headers and a body of a record: a message that a queue takes, or a rejected record with a reason."""
    key, revision, id_, body = (data.split(b"\n", 3) + [b""] * 3)[:4]
    record = SourceRecord("0", 1, body, key, {"revision": revision, "id": id_}, 7)
    for map_ in _MAPPINGS:
        try:
            draft = map_(record)
        except MappingError as error:
            reason = str(error)
            assert reason, "no reason"
            assert "\0" not in reason
            reason.encode()
            assert len(reason) <= 4 * source_limits.REASON_LENGTH
            continue
        if draft is not None:
            assert draft.revision is None or abs(draft.revision) < 2**63
            for name in (draft.group, draft.dedup_id):
                assert name is None or (name and "\0" not in name and name.encode())


TARGETS: dict[str, Callable[[bytes], None]] = {
    "http": http,
    "query": query,
    "json": json_body,
    "signature": signature,
    "mapping": mapping,
}


def _read(seed: int, data: bytes) -> None:
    whole, cut = RequestReader(_LIMITS, "peer"), RequestReader(_LIMITS, "peer")
    whole.feed(data)
    step = seed % 7 + 1
    for start in range(0, len(data), step):
        cut.feed(data[start : start + step])
    assert list(whole.requests) == list(cut.requests)
    assert (whole.refused, whole.is_last) == (cut.refused, cut.is_last)
    for request in whole.requests:
        assert len(request.body) <= _LIMITS.body_bytes
        assert len(request.headers) <= _LIMITS.headers
        assert request.method.isupper() or "-" in request.method
        for name, value in request.headers.items():
            assert name == name.lower()
            assert not {*b"\r\n\0"} & {*name, *value}
        assert not {*b"\r\n\0 "} & {*request.target}
    for reader in (whole, cut):
        size = sum(map(_size, reader.requests))
        assert reader.buffered_bytes == size if reader.refused else reader.buffered_bytes >= size
        while reader.requests:
            reader.next_request()
        assert 0 <= reader.buffered_bytes <= _LIMITS.header_bytes + _LIMITS.body_bytes + len(data)
        assert reader.buffered_bytes == 0 or reader.has_begun
        reader.close()


def _size(request: Request) -> int:
    headers = request.headers
    return len(request.target) + sum(map(len, headers)) + sum(map(len, headers.values())) + len(request.body)


def _told(request: Request) -> None:
    protocol = wire.protocol_of(request)
    try:
        call = wire.parse(request)
    except SqsError as caught:
        error = caught
    else:
        assert isinstance(call.params, ACTIONS[call.action].params)
        assert call.protocol is protocol
        return
    response = wire.refused(protocol, error, "r")
    assert 400 <= response.status == error.status < 500, error
    if response.content_type == "text/xml":
        ET.fromstring(response.body)  # noqa: S314 - our own
    else:
        assert isinstance(json.loads(response.body), dict)
    for header in response.headers:
        assert b"\n" not in b"".join(header)


def _unauthentic(verifier: Verifier, request: Request) -> None:
    """Look at the head of what nobody has signed, then at all of it: it is refused by then."""
    with suppress(SqsError):
        verifier.admit(request.method, request.target, request.headers, _NOW)
    try:
        verifier.verify(request.method, request.target, request.headers, request.body, _NOW)
    except SqsError as caught:
        error = caught
    else:
        raise AssertionError("it was accepted, and nobody has signed it")
    assert error.status in {400, 403}
    assert error.message.isprintable(), error.message


def _signed_by_botocore(verifier: Verifier, path: bytes, query: bytes, value: bytes, body: bytes) -> None:
    """Sign with botocore and verify; a body that changed on its way is refused."""
    quoted = "/" + quote_from_bytes(path.replace(b"/", b"").replace(b".", b""), safe="~")
    parameters = "&".join(
        f"{quote_from_bytes(name, safe='')}={quote_from_bytes(held, safe='')}"
        for name, _, held in (pair.partition(b"=") for pair in query.split(b"&"))
        if name and not name.lower().startswith(b"x-amz-")
    )
    shown = "".join(chr(byte) for byte in value if 33 <= byte < 127)
    request = AWSRequest("POST", f"http://a{quoted}?{parameters}", {"X-Amz-Target": "AmazonSQS." + shown}, body)
    with patch("botocore.auth.get_current_datetime", lambda: datetime.fromtimestamp(_NOW, UTC)):
        SigV4Auth(Credentials(_KEY.id, _KEY.secret), "sqs", "us-east-1").add_auth(request)
    headers = {name.lower().encode(): str(held).encode() for name, held in request.headers.items()} | {b"host": b"a"}
    target = f"{quoted}?{parameters}".encode()
    verifier.admit("POST", target, headers, _NOW)
    assert verifier.verify("POST", target, headers, body, _NOW).key is _KEY
    _unauthentic(verifier, Request("POST", target, headers, body + b"x", ""))
