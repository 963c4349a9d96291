"""Signature Version 4, verified: in the Authorization header, or in the query (a presigned URL).

Pure but for what it remembers: the time is passed in, and nothing is read or written. What does not change from one
request of a client to the next, which is nearly all, is worked out once: see :class:`_Claim`.

Which access keys exist is no secret, since the answer to a request with another is the service's own
``InvalidClientTokenId``; secrets take part only in the HMAC and in a comparison whose time tells nothing.
Session tokens are not looked at: there are no temporary credentials here.
"""

import hmac
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from inturn.core import limits
from inturn.server.auth.canonical import canonical_request, pairs, sha256_hex
from inturn.server.auth.keys import Key
from inturn.server.auth.replay import Replays
from inturn.server.errors import (
    SqsError,
    incomplete_signature,
    invalid_client_token_id,
    missing_authentication_token,
    signature_does_not_match,
)
from inturn.server.naming import is_region

_ALGORITHM: Final = b"AWS4-HMAC-SHA256"
_SIGNATURE: Final = b"X-Amz-Signature"
_PAYLOAD: Final = b"x-amz-content-sha256"
_BASIC: Final = "%Y%m%dT%H%M%SZ"
_DATE: Final = re.compile(rb"[0-9]{8}T[0-9]{6}Z")
_IN_QUERY: Final = (b"X-Amz-Algorithm", b"X-Amz-Credential", _SIGNATURE, b"X-Amz-SignedHeaders", b"X-Amz-Date")

_DECISIVE: Final = frozenset((b"host", _PAYLOAD, b"x-amz-date", b"x-amz-security-token", b"x-amz-target"))
"""Headers that must be signed if they are there, since they say what is done, when and where. The content type is not
among them: not all clients sign it, and a body that is signed means nothing as another type, as a form has its action
in the body and JSON in ``x-amz-target``."""


class Signer(NamedTuple):
    """Who has signed a request, and for which region."""

    key: Key
    region: str


class _Claim(NamedTuple):
    """What a request says of its signature, apart from the signature itself.

    Attributes:
        signer: whose it says it is, and for which region.
        scope: date, region, service, as they are signed.
        date: of the scope, YYYYMMDD.
        hmac: keyed for that key and scope; copied for each request.
        names: of the headers that are signed.
        unsigned: those of the decisive headers that are not.
    """

    signer: Signer
    scope: bytes
    date: bytes
    hmac: hmac.HMAC
    names: tuple[bytes, ...]
    unsigned: frozenset[bytes]


class _Signed(NamedTuple):
    """How one request is signed.

    Attributes:
        claim: by whom.
        signature: as it was sent.
        date: when, as it was sent.
        valid_s: for how many seconds.
        query: what of the query is signed.
    """

    claim: _Claim
    signature: bytes
    date: bytes
    valid_s: int
    query: bytes


class Verifier:
    """Verifies requests against access keys.

    Args:
        keys: that are known.
        region: which requests must be signed for; None: for any.
        replays: remembers what was accepted, so that it is refused when it comes again; None: only time tells.
    """

    def __init__(self, keys: Iterable[Key], *, region: str | None = None, replays: Replays | None = None) -> None:
        self._keys = {key.id.encode(): key for key in keys}
        self._region = region and region.encode()
        self._replays = replays
        self._claims: dict[bytes, _Claim] = {}

    def verify(self, method: str, target: bytes, headers: Mapping[bytes, bytes], body: bytes, now: float) -> Signer:
        """Whose a request is.

        Args:
            method: as in ``POST``.
            target: path and query as they were sent.
            headers: by their names in lower case.
            body: all of it.
            now: the time, in seconds since 1970.

        Raises:
            SqsError: if it is not signed, not with a known key, not rightly, or not within the last quarter of an hour.
        """
        signed, until = self._claimed(target, headers, now)
        payload = sha256_hex(body)
        if headers.get(_PAYLOAD, payload) != payload:
            raise signature_does_not_match()
        digest = _checked_signature(signed, method, target, headers, payload)
        if self._replays is not None and not self._replays.is_new(digest, until, now):
            raise signature_does_not_match("Signature already used: sign each request anew.")
        return signed.claim.signer

    def admit(self, method: str, target: bytes, headers: Mapping[bytes, bytes], now: float) -> None:
        """Refuse a request whose head tells already that nobody has signed it, before its body is read.

        Where the client says what the body's hash is (``x-amz-content-sha256``), the signature itself is checked;
        whether the body has that hash is seen when it is there. Else it is seen whether the key is known and the time
        is right.

        Args:
            method: as in ``POST``.
            target: path and query as they were sent.
            headers: by their names in lower case.
            now: the time, in seconds since 1970.

        Raises:
            SqsError: as :meth:`verify` would, whatever the body.
        """
        signed, _ = self._claimed(target, headers, now)
        if _PAYLOAD in headers:
            _checked_signature(signed, method, target, headers, headers[_PAYLOAD])

    def _claimed(self, target: bytes, headers: Mapping[bytes, bytes], now: float) -> tuple[_Signed, int]:
        """What a request says of its signature, and until when that is valid, in seconds since 1970."""
        _, _, query = target.partition(b"?")
        authorization = headers.get(b"authorization")
        if authorization is not None:
            signed = self._in_header(authorization, headers, query)
        elif b"X-Amz-" in query:
            signed = self._in_query(query)
        else:
            raise missing_authentication_token()
        claim = signed.claim
        if claim.unsigned and not claim.unsigned.isdisjoint(headers):
            name = min(claim.unsigned.intersection(headers)).decode()
            told = "Host' or ':authority" if name == "host" else name
            raise signature_does_not_match(f"'{told}' must be a 'SignedHeader' in the AWS Authorization.")
        return signed, _checked_time(signed, now)

    # --- where the signature stands ---

    def _in_header(self, authorization: bytes, headers: Mapping[bytes, bytes], query: bytes) -> _Signed:
        head, _, signature = authorization.rpartition(b"Signature=")
        claim = self._claims.get(head)
        if claim is None:
            parts = _parts(authorization)
            claim = self._claim(parts[b"Credential"], parts[b"SignedHeaders"])
            if signature == parts[b"Signature"]:  # so what stands before it says all the rest
                self._remember(head, claim)
            signature = parts[b"Signature"]
        date = headers.get(b"x-amz-date")
        if date is None:
            date = _date_header(headers, claim, authorization)
        return _Signed(claim, signature, date, limits.CLOCK_SKEW_S, query)

    def _in_query(self, query: bytes) -> _Signed:
        given = dict(pairs(query))
        missing = [name.decode() for name in _IN_QUERY if name not in given]
        if missing:
            text = " ".join(f"AWS query-string parameters must include '{name}'." for name in missing)
            raise incomplete_signature(f"{text} Re-examine the query-string parameters.")
        if given[b"X-Amz-Algorithm"] != _ALGORITHM:
            raise incomplete_signature(f"Unsupported AWS 'algorithm': '{_shown(given[b'X-Amz-Algorithm'])}'.")
        credential, names = given[b"X-Amz-Credential"], given[b"X-Amz-SignedHeaders"]
        place = credential + b"\n" + names  # no header has a line feed
        claim = self._claims.get(place)
        if claim is None:
            claim = self._claim(credential, names)
            self._remember(place, claim)
        kept = b"&".join(each for each in query.split(b"&") if not each.startswith(b"X-Amz-Signature="))
        valid_s = _valid_s(given.get(b"X-Amz-Expires"))
        return _Signed(claim, given[_SIGNATURE], given[b"X-Amz-Date"], valid_s, kept)

    # --- who says to have signed ---

    def _remember(self, place: bytes, claim: _Claim) -> None:
        if len(place) <= limits.CLAIM_BYTES:
            if len(self._claims) >= limits.CLAIMS:
                self._claims.clear()
            self._claims[place] = claim

    def _claim(self, credential: bytes, signed_headers: bytes) -> _Claim:
        parts = credential.split(b"/")
        if len(parts) != 5:
            text = "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term"
            raise incomplete_signature(f"{text}, got '{_shown(credential)}'")
        key_id, date, region, service, end = parts
        key = self._keys.get(key_id)
        if key is None:
            raise invalid_client_token_id()
        wrong = []
        if not is_region(region.decode("latin-1")) or self._region not in (region, None):
            wrong.append("Credential should be scoped to a valid region.")
        if service != b"sqs":
            wrong.append("Credential should be scoped to correct service: 'sqs'.")
        if end != b"aws4_request":
            wrong.append(f"Credential should be scoped with a valid terminator: 'aws4_request', not '{_shown(end)}'.")
        if wrong:
            raise signature_does_not_match(" ".join(wrong))
        names = tuple(signed_headers.split(b";"))
        if b"host" not in names:
            raise signature_does_not_match("'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.")
        code = hmac.new(_signing_key(key.secret, date, region, service), digestmod="sha256")
        signer = Signer(key, region.decode())
        return _Claim(signer, b"/".join(parts[1:]), date, code, names, _DECISIVE.difference(names))


def _checked_signature(
    signed: _Signed, method: str, target: bytes, headers: Mapping[bytes, bytes], payload: bytes
) -> bytes:
    """The signature of a request, in bytes, if its key has made it."""
    claim, path = signed.claim, target.partition(b"?")[0]
    canonical = canonical_request(method, path, signed.query, claim.names, headers, payload)
    if canonical is None:
        raise signature_does_not_match()
    code = claim.hmac.copy()
    code.update(b"%b\n%b\n%b\n%b" % (_ALGORITHM, signed.date, claim.scope, sha256_hex(canonical)))
    if not hmac.compare_digest(code.hexdigest().encode(), signed.signature):
        raise signature_does_not_match()
    return code.digest()


def _signing_key(secret: str, date: bytes, region: bytes, service: bytes) -> bytes:
    key = b"AWS4" + secret.encode()
    for part in (date, region, service, b"aws4_request"):
        key = hmac.digest(key, part, "sha256")
    return key


def _parts(authorization: bytes) -> dict[bytes, bytes]:
    """The three parts of an Authorization header, in any order."""
    algorithm, _, rest = authorization.partition(b" ")
    if algorithm.startswith(b"AWS4-") and algorithm != _ALGORITHM:
        raise incomplete_signature(f"Unsupported AWS 'algorithm': '{_shown(algorithm)}'.")
    pairs = [part.strip().partition(b"=") for part in rest.split(b",")]
    if algorithm != _ALGORITHM or not all(equals for _, equals, _ in pairs):
        text = (
            "Invalid key=value pair (missing equal-sign) in Authorization header (hashed with SHA-256 and encoded with"
        )
        raise incomplete_signature(f"{text} Base64): '{_hashed(authorization)}'.")
    parts = {name: value for name, _, value in pairs}
    wanted = (b"Credential", b"Signature", b"SignedHeaders")
    missing = [f"Authorization header requires '{name.decode()}' parameter." for name in wanted if not parts.get(name)]
    if missing:
        raise _lacking(missing, authorization)
    return parts


def _lacking(missing: list[str], authorization: bytes) -> SqsError:
    said = f"(Hashed with SHA-256 and encoded with Base64) Authorization={_hashed(authorization)}"
    return incomplete_signature(f"{' '.join(missing)} {said}")


def _hashed(text: bytes) -> str:
    return b64encode(sha256(text).digest()).decode()


def _shown(text: bytes) -> str:
    """Some of what a client sent, for an answer to it: in printable ASCII."""
    return text[:100].decode("latin-1").encode("unicode_escape").decode()


# --- time ---


def _date_header(headers: Mapping[bytes, bytes], claim: _Claim, authorization: bytes) -> bytes:
    """When a request was signed that has no ``X-Amz-Date``."""
    date = headers.get(b"date")
    if date is None:
        text = "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        raise _lacking([text], authorization)
    if b"date" not in claim.names:
        raise signature_does_not_match("'Date' must be a 'SignedHeader' in the AWS Authorization.")
    if _DATE.fullmatch(date):
        return date
    try:
        moment = parsedate_to_datetime(date.decode("latin-1"))
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise _bad_date(date) from error
    try:
        return (moment if moment.tzinfo is None else moment.astimezone(UTC)).strftime(_BASIC).encode()
    except (ValueError, OverflowError) as error:
        raise _bad_date(date) from error


@lru_cache(limits.DATES)
def _seconds(date: bytes) -> int:
    """A time in ISO 8601's basic format as seconds since 1970."""
    if _DATE.fullmatch(date):
        with suppress(ValueError):
            return int(datetime.strptime(date.decode(), _BASIC).replace(tzinfo=UTC).timestamp())
    raise _bad_date(date)


def _bad_date(date: bytes) -> SqsError:
    text = f"Date must be in ISO-8601 'basic format'. Got '{_shown(date)}'."
    return incomplete_signature(f"{text} See http://en.wikipedia.org/wiki/ISO_8601")


def _valid_s(expires: bytes | None) -> int:
    """For how long a presigned request is valid, in seconds."""
    if expires is None:
        return limits.CLOCK_SKEW_S
    if not re.fullmatch(rb"[0-9]{1,6}", expires) or int(expires) > limits.PRESIGNED_S:
        text = f"X-Amz-Expires must be a number of seconds, at most a week, that is {limits.PRESIGNED_S}"
        raise incomplete_signature(f"{text}; got '{_shown(expires)}'.")
    return int(expires)


def _checked_time(signed: _Signed, now: float) -> int:
    """When the signature's validity ends, in seconds since 1970, if it has begun and has not ended."""
    date, valid_s = signed.date, signed.valid_s
    at = _seconds(date)
    if at + valid_s < now:
        then = f"{_basic(now - valid_s)} ({_basic(now)} - {valid_s / 60:g} min.)"
        raise signature_does_not_match(f"Signature expired: {date.decode()} is now earlier than {then}")
    if at > now + limits.CLOCK_SKEW_S:
        then = f"{_basic(now + limits.CLOCK_SKEW_S)} ({_basic(now)} + {limits.CLOCK_SKEW_S / 60:g} min.)"
        raise signature_does_not_match(f"Signature not yet current: {date.decode()} is still later than {then}")
    if date[:8] != signed.claim.date:
        text = "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP"
        raise signature_does_not_match(
            f"{text}: '{_shown(signed.claim.date)}' != '{date[:8].decode()}', from '{date.decode()}'."
        )
    return at + valid_s


def _basic(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(_BASIC)
