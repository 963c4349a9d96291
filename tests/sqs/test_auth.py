"""Signature Version 4 against botocore's own signers: what they sign is accepted, and nothing else is."""

import hmac
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from signing import KEY, NOW, Sent, signed

from inturn.sqs import limits
from inturn.sqs.auth import Key, ReplayGuard, Verifier
from inturn.sqs.auth.canonical import canonical_path, canonical_query, canonical_request, sha256_hex
from inturn.sqs.auth.verifier import _signing_key
from inturn.sqs.errors import SqsError

OTHER = Key("AKIDOTHER", "other secret")
VERIFIER = Verifier([KEY, OTHER])
NO_MATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details."
)


def refused(sent: Sent, verifier: Verifier = VERIFIER, now: float = NOW) -> SqsError:
    with pytest.raises(SqsError) as caught:
        sent.verified(verifier, now)
    return caught.value


def refusal_text(sent: Sent, verifier: Verifier = VERIFIER, now: float = NOW) -> str:
    return str(refused(sent, verifier, now))


# --- what botocore signs ---

PRINTED = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True).filter(
    lambda name: name not in {"date", "host", "authorization", "x-amz-date", "x-amz-content-sha256", "content-length"}
)
SEGMENTS = st.text(max_size=8).filter(lambda text: text.isprintable() and not set(text) & set("?#[]\\"))
PATHS = st.lists(SEGMENTS | st.sampled_from(["", ".", "..", "%20", "a%2Fb", "a b", "~", "é"]), max_size=5).map(
    lambda parts: "/" + "/".join(parts)
)
REQUESTS = st.fixed_dictionaries(
    {
        "url": PATHS.map("http://localhost:9324".__add__),
        "body": st.binary(max_size=200),
        "headers": st.dictionaries(NAMES, PRINTED, max_size=4),
        "region": st.sampled_from(["us-east-1", "eu-central-1"]),
        "token": st.none() | st.just("session//token=="),
        "time_s": st.integers(int(NOW) - 900, int(NOW) + 900),
    }
)


@given(REQUESTS, st.dictionaries(st.text(), st.text(), max_size=4), st.sampled_from(["POST", "GET", "PUT"]))
@example({"url": "http://[::1]:9324//a/../b/"}, {"a": "+ ~%", "a b": ""}, "POST")
def test_a_request_signed_in_its_header_is_accepted(
    request: dict[str, Any], params: dict[str, str], method: str
) -> None:
    assert signed(**request, params=params, method=method).verified(VERIFIER) is KEY


@given(REQUESTS, st.dictionaries(st.text(), st.text(), max_size=4), st.integers(900, 604_800))
def test_a_presigned_request_is_accepted(request: dict[str, Any], params: dict[str, str], expires: int) -> None:
    request |= {"body": b"", "time_s": NOW - expires // 2}
    assert signed(**request, params=params, method="GET", expires=expires).verified(VERIFIER) is KEY


def test_signature_of_the_sigv4_test_suite_example() -> None:
    """The case get-vanilla-query-order-key-case of the test suite of Signature Version 4, for a service named so."""
    date, scope = b"20150830T123600Z", b"20150830/us-east-1/service/aws4_request"
    headers = {b"host": b"example.amazonaws.com", b"x-amz-date": date}
    query = b"Param2=value2&Param1=value1"
    canonical = canonical_request("GET", b"/", query, (b"host", b"x-amz-date"), headers, sha256_hex(b""))
    assert canonical is not None
    key = _signing_key(KEY.secret, *scope.split(b"/")[:3])
    text = b"\n".join((b"AWS4-HMAC-SHA256", date, scope, sha256_hex(canonical)))
    assert hmac.new(key, text, "sha256").hexdigest() == (
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
    )


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        (b"", b"/"),
        (b"/", b"/"),
        (b"//", b"/"),
        (b"/a/./b/../c", b"/a/c"),
        (b"/../..", b"/"),
        (b"/a//b/", b"/a/b/"),
        (b"/000000000000/orders.fifo", b"/000000000000/orders.fifo"),
        (b"/a%20b", b"/a%2520b"),
        ("/é~".encode(), b"/%C3%A9~"),
    ],
)
def test_canonical_paths_are_encoded_as_sigv4_requires(path: bytes, canonical: bytes) -> None:
    assert canonical_path(path) == canonical


def test_an_equivalent_query_encoding_is_accepted() -> None:
    sent = signed("http://localhost/", params={"a": "b c~"}, method="GET", headers={})
    assert sent.target == b"/?a=b+c~"  # although it has signed %20
    for target in (b"/?a=b%20c~", b"/?a=b+c%7e", b"/?%61=b%20c%7E"):
        assert sent._replace(target=target).verified(VERIFIER) is KEY


def test_a_date_header_is_accepted_instead_of_x_amz_date() -> None:
    headers = {"Date": "is replaced", "X-Amz-Target": "AmazonSQS.ListQueues"}
    sent = signed(headers=headers)
    assert b"x-amz-date" not in sent.headers
    assert sent.verified(VERIFIER) is KEY
    assert refusal_text(sent, now=NOW + 901).startswith("SignatureDoesNotMatch: Signature expired: 20231114T221320Z")
    assert "Date must be in ISO-8601 'basic format'. Got 'tomorrow'" in refusal_text(sent.header("date", b"tomorrow"))


def test_whitespace_in_signed_headers_is_normalized() -> None:
    sent = signed(headers={"X-Amz-Target": "a b", "My-Header": "  one   two\tthree "})
    assert sent.header("my-header", b"one two three").verified(VERIFIER) is KEY
    assert refusal_text(sent.header("my-header", b"one two  thre e")).endswith(NO_MATCH)


def test_a_line_feed_in_a_header_value_does_not_sign_another_header() -> None:
    """Only a parser that lets line feeds through could send this."""
    sent = signed(headers={"X-Amz-Target": "a"})
    names = sent.headers[b"authorization"].partition(b"SignedHeaders=")[2].partition(b",")[0]
    assert names == b"host;x-amz-date;x-amz-target"
    smuggled = sent.header("host", sent.headers[b"host"] + b"\nx-amz-date:" + sent.headers[b"x-amz-date"])
    authorization = sent.headers[b"authorization"].replace(b"host;x-amz-date;", b"host;")
    assert "'x-amz-date' must be" in refusal_text(smuggled.header("authorization", authorization))


# --- what is not what was signed ---


def changed(content: bytes, place: int) -> bytes:
    if not content:
        return b"x"
    place %= len(content)
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@given(
    st.integers(0, 400), st.sampled_from(["target", "body", "method", "x-amz-target", "content-type", "host", "mine"])
)
def test_a_changed_part_of_a_signed_request_is_refused(place: int, what: str) -> None:
    headers = {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": "application/x-amz-json-1.0", "Mine": "value"}
    sent = signed("http://localhost:9324/000000000000/orders.fifo?a=1", b'{"MessageBody": "x"}', headers)
    if what == "target":
        other = sent._replace(target=sent.target[:1] + changed(sent.target[1:], place))
    elif what == "body":
        other = sent._replace(body=changed(sent.body, place))
    elif what == "method":
        other = sent._replace(method="PUT")
    else:
        other = sent.header(what, changed(sent.headers[what.encode()], place))
    assert refusal_text(other) == f"SignatureDoesNotMatch: {NO_MATCH}"
    assert sent.verified(VERIFIER) is KEY


@given(st.integers(0, 1000))
def test_a_changed_authorization_header_is_refused(place: int) -> None:
    sent = signed()
    refused(sent.header("authorization", changed(sent.headers[b"authorization"], place)))
    assert sent.verified(VERIFIER) is KEY


@given(st.integers(0, 1000))
def test_a_changed_presigned_url_is_refused(place: int) -> None:
    sent = signed(method="GET", headers={}, expires=900, params={"Action": "SendMessage", "MessageBody": "a b"})
    mutated = sent._replace(target=b"/" + changed(sent.target[1:], place))
    if canonical_query(mutated.target[2:]) != canonical_query(sent.target[2:]):  # %2A is %2a
        refused(mutated)
    assert sent.verified(VERIFIER) is KEY


def test_a_presigned_request_with_a_changed_body_or_query_is_refused() -> None:
    sent = signed(method="GET", headers={}, expires=900)
    assert refusal_text(sent._replace(body=b"x")).endswith(NO_MATCH)
    assert refusal_text(sent._replace(target=sent.target + b"&Action=DeleteQueue")).endswith(NO_MATCH)


@given(st.sampled_from(["host", "x-amz-date", "x-amz-target", "x-amz-content-sha256", "x-amz-security-token"]))
def test_security_relevant_headers_must_be_signed(name: str) -> None:
    headers = {"X-Amz-Target": "AmazonSQS.SendMessage", "X-Amz-Content-Sha256": sha256(b"{}").hexdigest()}
    sent = signed(headers=headers, token="session")  # noqa: S106
    assert sent.verified(VERIFIER) is KEY
    before, _, after = sent.headers[b"authorization"].partition(b"SignedHeaders=")
    names, comma, end = after.partition(b",")
    remaining = b";".join(header for header in names.split(b";") if header != name.encode())
    other = sent.header("authorization", before + b"SignedHeaders=" + remaining + comma + end)
    needed = "Host' or ':authority" if name == "host" else name
    assert (
        refusal_text(other) == f"SignatureDoesNotMatch: '{needed}' must be a 'SignedHeader' in the AWS Authorization."
    )


def test_an_unsigned_action_header_is_refused() -> None:
    sent = signed(headers={})
    assert "'x-amz-target' must be" in refusal_text(sent.header("x-amz-target", b"AmazonSQS.DeleteQueue"))
    assert refusal_text(sent.header("host", None)).endswith(NO_MATCH)


def test_a_wrong_content_digest_is_refused() -> None:
    for content_hash in ("UNSIGNED-PAYLOAD", sha256(b"other").hexdigest()):
        headers = {"X-Amz-Content-Sha256": content_hash, "X-Amz-Target": "AmazonSQS.SendMessage"}
        assert refusal_text(signed(headers=headers)).endswith(NO_MATCH)


# --- whose, where, when ---


def test_unknown_keys_and_wrong_secrets_are_refused() -> None:
    assert signed(key=OTHER).verified(VERIFIER) is OTHER
    unknown = refused(signed(key=Key("AKIDNOBODY", "secret")))
    assert (unknown.query_code, unknown.code) == ("InvalidClientTokenId", "UnrecognizedClientException")
    assert (unknown.status, unknown.message) == (403, "The security token included in the request is invalid.")
    wrong = refused(signed(key=Key(KEY.id, OTHER.secret)))
    assert (wrong.query_code, wrong.code) == ("SignatureDoesNotMatch", "InvalidSignatureException")
    assert (wrong.status, wrong.message) == (403, NO_MATCH)


def test_credential_scopes_with_a_wrong_service_or_region_are_refused() -> None:
    assert "scoped to correct service: 'sqs'." in refusal_text(signed(service="sns"))
    assert signed(region="mars-1").verified(VERIFIER) is KEY
    verifier = Verifier([KEY], region="us-east-1")
    assert signed().verified(verifier) is KEY
    assert refusal_text(signed(region="mars-1"), verifier) == (
        "SignatureDoesNotMatch: Credential should be scoped to a valid region."
    )
    for none in ("US", "a:b", "x" * 33, ""):
        assert refusal_text(signed(region=none), VERIFIER).endswith("Credential should be scoped to a valid region.")
    sent = signed()
    authorization = sent.headers[b"authorization"]
    other = sent.header("authorization", authorization.replace(b"aws4_request", b"aws5_request"))
    assert "valid terminator: 'aws4_request', not 'aws5_request'." in refusal_text(other)
    other = sent.header("authorization", authorization.replace(b"/20231114/", b"/20231113/"))
    assert "HTTP: '20231113' != '20231114', from '20231114T221320Z'." in refusal_text(other)
    other = sent.header("authorization", authorization.replace(b"/sqs/", b"/"))
    assert refusal_text(other).startswith(
        "IncompleteSignature: Credential must have exactly 5 slash-delimited elements"
    )


def test_a_clock_skew_over_15_minutes_is_refused() -> None:
    sent = signed()
    for skew in (-900, 0, 900):
        assert sent.verified(VERIFIER, NOW + skew) is KEY
    assert refusal_text(sent, now=NOW + 901) == (
        "SignatureDoesNotMatch: Signature expired: 20231114T221320Z is now earlier than 20231114T221321Z "
        "(20231114T222821Z - 15 min.)"
    )
    assert refusal_text(sent, now=NOW - 901) == (
        "SignatureDoesNotMatch: Signature not yet current: 20231114T221320Z is still later than 20231114T221319Z "
        "(20231114T215819Z + 15 min.)"
    )


def test_a_presigned_url_expires_after_x_amz_expires() -> None:
    sent = signed(method="GET", headers={}, expires=3600)
    assert sent.verified(VERIFIER, NOW + 3600) is KEY
    assert "is now earlier than 20231114T221321Z (20231114T231321Z - 60 min.)" in refusal_text(sent, now=NOW + 3601)
    assert "Signature not yet current" in refusal_text(sent, now=NOW - 901)
    week = signed(method="GET", headers={}, expires=604_800)
    assert week.verified(VERIFIER, NOW + 604_800) is KEY
    for expires in (604_801, -1):
        assert "IncompleteSignature: X-Amz-Expires must be" in refusal_text(
            signed(method="GET", headers={}, expires=expires)
        )


# --- what is no signature ---


def test_an_unsigned_request_gets_missing_authentication_token() -> None:
    error = refused(Sent("POST", b"/", {b"host": b"localhost"}, b""))
    assert (error.query_code, error.code) == ("MissingAuthenticationToken", "MissingAuthenticationTokenException")
    assert refused(Sent("GET", b"/?Action=ListQueues", {}, b"")).query_code == "MissingAuthenticationToken"


@pytest.mark.parametrize(
    ("authorization", "words"),
    [
        (b"", "Invalid key=value pair (missing equal-sign) in Authorization header"),
        (b"Bearer abc", "Invalid key=value pair (missing equal-sign) in Authorization header"),
        (b"Basic YTpi", "Invalid key=value pair (missing equal-sign) in Authorization header"),
        (b"AWS4-HMAC-SHA256", "Invalid key=value pair (missing equal-sign) in Authorization header"),
        (b"AWS4-HMAC-SHA256 Credential", "Invalid key=value pair (missing equal-sign) in Authorization header"),
        (b"AWS4-ECDSA-P256-SHA256 Credential=a", "Unsupported AWS 'algorithm': 'AWS4-ECDSA-P256-SHA256'."),
        (
            b"AWS4-HMAC-SHA256 Credential=a",
            "requires 'Signature' parameter. Authorization header requires 'SignedHeaders' parameter. (Hashed with",
        ),
        (b"AWS4-HMAC-SHA256 Credential=, SignedHeaders=host, Signature=", "requires 'Credential' parameter."),
        (b"AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=00", "got 'a/b'"),
        (b"AWS4-HMAC-SHA256 Credential=\xff\x00/b, SignedHeaders=host, Signature=00", r"got '\xff\x00/b'"),
    ],
)
def test_malformed_authorization_headers_get_incomplete_signature(authorization: bytes, words: str) -> None:
    error = refused(signed().header("authorization", authorization))
    assert (error.query_code, error.status) == ("IncompleteSignature", 400)
    assert words in error.message


def test_a_signature_without_a_valid_date_is_refused() -> None:
    sent = signed()
    authorization = sent.headers[b"authorization"].replace(b";x-amz-date", b"")
    error = refused(sent.header("x-amz-date", None).header("authorization", authorization))
    assert "requires existence of either a 'X-Amz-Date' or a 'Date' header." in error.message
    unsigned = sent.header("x-amz-date", None).header("authorization", authorization).header("date", b"x")
    assert "'Date' must be a 'SignedHeader'" in refusal_text(unsigned)
    for date in (b"", b"20231114", b"20231314T221320Z", b"2023-11-14T22:13:20Z", "20231114T22132\u0660Z".encode()):
        assert "Date must be in ISO-8601 'basic format'." in refusal_text(sent.header("x-amz-date", date))


def test_a_presigned_url_with_a_missing_parameter_is_refused() -> None:
    sent = signed(method="GET", headers={}, expires=900)
    for name in (b"X-Amz-Algorithm", b"X-Amz-Credential", b"X-Amz-Date", b"X-Amz-SignedHeaders", b"X-Amz-Signature"):
        other = sent._replace(target=sent.target.replace(name, b"Not"))
        assert f"AWS query-string parameters must include '{name.decode()}'." in refusal_text(other)
    other = sent._replace(target=sent.target.replace(b"AWS4-HMAC-SHA256", b"AWS4-X"))
    assert "Unsupported AWS 'algorithm': 'AWS4-X'." in refusal_text(other)


PIECES = st.lists(
    st.sampled_from(
        b"AWS4-HMAC-SHA256| |,|=|/|;|Credential=|SignedHeaders=|Signature=|host|x-amz-date|%|\xff|\n".split(b"|")
    )
    | st.sampled_from([b"AKIDEXAMPLE/20231114/us-east-1/sqs/aws4_request", b"0" * 64])
    | st.binary(max_size=6),
    max_size=14,
).map(b"".join)


@given(PIECES, st.none() | PIECES, PIECES)
def test_any_malformed_signature_gets_an_ascii_sqs_error(
    authorization: bytes, date: bytes | None, query: bytes
) -> None:
    sent = signed().header("authorization", authorization)
    if date is not None:
        sent = sent.header("x-amz-date", None).header("date", date)
    for request in (sent, sent._replace(target=b"/?" + query), sent._replace(headers={}, target=b"/?X-Amz-" + query)):
        assert refused(request).message.isascii()


@given(st.permutations([b"Credential", b"SignedHeaders", b"Signature"]), st.sampled_from([b",", b", ", b" , "]))
def test_authorization_parts_are_accepted_in_any_order(names: list[bytes], comma: bytes) -> None:
    sent = signed()
    parts = dict(part.split(b"=", 1) for part in sent.headers[b"authorization"][17:].split(b", "))
    text = b"AWS4-HMAC-SHA256 " + comma.join(b"%b=%b" % (name, parts[name]) for name in names)
    for _ in range(2):
        assert sent.header("authorization", text).verified(VERIFIER) is KEY


def test_the_cache_of_parsed_authorizations_cannot_be_poisoned() -> None:
    """What follows the signature must not be taken for what stood before it, the next time."""
    verifier = Verifier([KEY, OTHER])
    sent = signed()
    head, _, signature = sent.headers[b"authorization"].rpartition(b"Signature=")
    twisted = head + b"Signature=" + signature + b", Credential=AKIDOTHER/20231114/us-east-1/sqs/aws4_request"
    assert refusal_text(sent.header("authorization", twisted), verifier).endswith(NO_MATCH)
    assert sent.verified(verifier) is KEY


def test_the_cache_of_parsed_authorizations_is_bounded() -> None:
    verifier = Verifier([KEY])
    for number in range(limits.CLAIMS + 10):
        assert signed(region=f"region-{number}").verified(verifier) is KEY
    long = {f"x-{number}": "" for number in range(limits.CLAIM_BYTES // 4)}
    assert signed(headers=long).verified(verifier) is KEY
    assert len(verifier._claims) == 10


# --- before the body is there ---


def admitted(sent: Sent, verifier: Verifier = VERIFIER) -> str:
    """What is said of the head alone; "" if the body may come."""
    try:
        verifier.admit(sent.method, sent.target, sent.headers, NOW)
    except SqsError as error:
        return error.query_code
    return ""


def hashed(key: Key = KEY) -> Sent:
    """A request that says what the hash of its body is, as those of the SDK for JavaScript do."""
    headers = {"X-Amz-Target": "AmazonSQS.SendMessage", "X-Amz-Content-SHA256": sha256(b"{}").hexdigest()}
    return signed(headers=headers, key=key)


def test_an_invalid_signature_is_refused_before_the_body_is_read() -> None:
    foreign = Key("AKIDEXAMPLE", "another")
    assert admitted(signed()) == admitted(signed(method="GET", headers={}, expires=60)) == admitted(hashed()) == ""
    assert admitted(signed().header("authorization", None)) == "MissingAuthenticationToken"
    assert admitted(signed(key=Key("AKIDNOBODY", "x"))) == "InvalidClientTokenId"
    assert admitted(signed(time_s=NOW - 1000)) == "SignatureDoesNotMatch"
    assert admitted(signed(service="s3")) == "SignatureDoesNotMatch"
    assert admitted(signed().header("authorization", b"AWS4-HMAC-SHA256 x")) == "IncompleteSignature"
    assert admitted(hashed(foreign)) == "SignatureDoesNotMatch"
    assert admitted(hashed().header("x-amz-target", b"AmazonSQS.PurgeQueue")) == "SignatureDoesNotMatch"
    assert admitted(signed(key=foreign)) == "", "only the whole body tells"


def test_the_header_check_neither_uses_up_a_signature_nor_admits_another_body() -> None:
    strict = Verifier([KEY], replays=ReplayGuard())
    sent = hashed()
    assert admitted(sent, strict) == admitted(sent, strict) == ""
    assert refusal_text(sent._replace(body=b"x"), strict).endswith(NO_MATCH)
    assert sent.verified(strict) is KEY
    assert admitted(sent, strict) == "", "whether it came before is asked when it is whole"
    assert "Signature already used" in refusal_text(sent, strict)


# --- the same again ---


def test_a_replayed_request_is_refused_only_if_so_configured() -> None:
    sent = signed()
    strict = Verifier([KEY], replays=ReplayGuard())
    for _ in range(2):
        assert sent.verified(VERIFIER) is KEY
    assert refusal_text(sent._replace(body=b"x"), strict).endswith(NO_MATCH)
    assert sent.verified(strict) is KEY
    assert "Signature already used" in refusal_text(sent, strict, NOW + 900)
    assert "Signature already used" in refusal_text(
        sent.header("authorization", sent.headers[b"authorization"] + b""), strict
    )
    assert "Signature expired" in refusal_text(sent, strict, NOW + 901)
    assert signed(time_s=NOW + 1).verified(strict) is KEY


def test_a_presigned_url_works_once_if_replays_are_refused() -> None:
    strict = Verifier([KEY], replays=ReplayGuard())
    sent = signed(method="GET", headers={}, expires=604_800)
    assert sent.verified(strict) is KEY
    assert "Signature already used" in refusal_text(sent, strict, NOW + 604_000)


def digest(number: int) -> bytes:
    return hmac.digest(b"", str(number).encode(), "sha256")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 2)), max_size=60), st.integers(1, 6))
def test_the_replay_cache_accepts_each_signature_once_and_is_bounded(
    steps: list[tuple[int, int, int]], most: int
) -> None:
    replays = ReplayGuard(most)
    accepted: set[tuple[int, int]] = set()
    now = 0
    for signature, until, passed in steps:
        now += passed
        end = now + until
        if replays.is_new(digest(signature), end, now):
            assert (signature, end) not in accepted
            accepted.add((signature, end))
        assert replays._count == sum(map(len, replays._until.values())) <= most
        assert sorted(replays._until) == sorted(replays._ends)


def test_a_full_replay_cache_refuses_the_oldest_signatures() -> None:
    replays = ReplayGuard(3)
    assert all(replays.is_new(digest(number), 100 + number, 0) for number in range(10))
    assert not replays.is_new(digest(5), 105, 0)
    assert not replays.is_new(digest(99), 105, 0)
    assert replays.is_new(digest(99), 107, 0)
    assert not replays.is_new(digest(9), 109, 0)
