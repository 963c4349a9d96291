"""Verification of Signature Version 4: in the Authorization header, or in the query (a presigned URL).

The only state is a memory: the time is passed in, and there is no I/O. The part that does not change between the
requests of a client, which is nearly all, is computed once: see :class:`_Claim`.

The ids of access keys are no secret, since an unknown one is answered with the service's own
``InvalidClientTokenId``; secrets are used only in the HMAC and in a constant-time comparison.
Session tokens are ignored: there are no temporary credentials here.
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

from inturn.sqs import limits
from inturn.sqs.auth.canonical import canonical_request, pairs, sha256_hex
from inturn.sqs.auth.keys import Key
from inturn.sqs.auth.replay import ReplayGuard
from inturn.sqs.errors import (
    SqsError,
    incomplete_signature,
    invalid_client_token_id,
    missing_authentication_token,
    signature_already_used,
    signature_does_not_match,
)
from inturn.sqs.naming import is_region

_ALGORITHM: Final = b"AWS4-HMAC-SHA256"
_SIGNATURE: Final = b"X-Amz-Signature"
_PAYLOAD: Final = b"x-amz-content-sha256"
_BASIC: Final = "%Y%m%dT%H%M%SZ"
_DATE: Final = re.compile(rb"[0-9]{8}T[0-9]{6}Z")
_IN_QUERY: Final = (b"X-Amz-Algorithm", b"X-Amz-Credential", _SIGNATURE, b"X-Amz-SignedHeaders", b"X-Amz-Date")

_DECISIVE: Final = frozenset((b"host", _PAYLOAD, b"x-amz-date", b"x-amz-security-token", b"x-amz-target"))
"""Headers that must be signed if present, since they determine the action, the time and the place. The content type is
not among them: not all clients sign it, and a signed body means nothing as another type, since a form has its action in
the body and JSON in ``x-amz-target``.
"""


class Signer(NamedTuple):
    """The key and the region of a request's signature, and the end of its validity in seconds since 1970."""

    key: Key
    region: str
    signature: bytes
    until: int


class _Claim(NamedTuple):
    """The statements of a request about its signature, without the signature itself.

    The scope is date, region and service, as they are signed; the date is YYYYMMDD. ``hmac`` is keyed for that key and
    scope, and copied for each request. ``names`` are those of the signed headers, ``unsigned`` the decisive headers
    that are not among them.
    """

    key: Key
    region: str
    scope: bytes
    date: bytes
    hmac: hmac.HMAC
    names: tuple[bytes, ...]
    unsigned: frozenset[bytes]


class _Signed(NamedTuple):
    """The signature of one request: itself and its date as sent, and the signed part of the query."""

    claim: _Claim
    signature: bytes
    date: bytes
    valid_s: int
    query: bytes


class Verifier:
    """Verifies requests against access keys.

    The target of a request is path and query as sent, its headers are by their names in lower case, and times are in
    seconds since 1970.

    Args:
        keys: the known keys.
        region: the region that requests must be signed for; None: any.
        replays: the memory that refuses a repeated signature; None: signatures may repeat while they are valid.
    """

    def __init__(self, keys: Iterable[Key], *, region: str | None = None, replays: ReplayGuard | None = None) -> None:
        self._keys = {key.id.encode(): key for key in keys}
        self._region = region and region.encode()
        self._replays = replays
        self._claims: dict[bytes, _Claim] = {}

    def verify(self, method: str, target: bytes, headers: Mapping[bytes, bytes], body: bytes, now: float) -> Signer:
        """Verify a request and return its signer; refuse a missing, wrong or expired signature, or an unknown key."""
        signed, until = self._claimed(target, headers, now)
        payload = sha256_hex(body)
        if headers.get(_PAYLOAD, payload) != payload:
            raise signature_does_not_match()
        digest = _checked_signature(signed, method, target, headers, payload)
        if self._replays is not None and not self._replays.is_new(digest, until, now):
            raise signature_already_used()
        return Signer(signed.claim.key, signed.claim.region, digest, until)

    def admit(self, method: str, target: bytes, headers: Mapping[bytes, bytes], now: float) -> None:
        """Refuse a request that no body could make valid, before the body is read.

        If the client sends the body's hash (``x-amz-content-sha256``), the signature itself is checked; the hash is
        compared with the body later. Else only the key and the time are checked.
        """
        signed, _ = self._claimed(target, headers, now)
        if _PAYLOAD in headers:
            _checked_signature(signed, method, target, headers, headers[_PAYLOAD])

    def _claimed(self, target: bytes, headers: Mapping[bytes, bytes], now: float) -> tuple[_Signed, int]:
        """Parse a request's signature; return it with the end of its validity, in seconds since 1970."""
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
            header = "Host' or ':authority" if name == "host" else name
            raise signature_does_not_match(f"'{header}' must be a 'SignedHeader' in the AWS Authorization.")
        return signed, _checked_time(signed, now)

    # --- the two places of a signature ---

    def _in_header(self, authorization: bytes, headers: Mapping[bytes, bytes], query: bytes) -> _Signed:
        head, _, signature = authorization.rpartition(b"Signature=")
        claim = self._claims.get(head)
        if claim is None:
            parts = _parts(authorization)
            claim = self._claim(parts[b"Credential"], parts[b"SignedHeaders"])
            if signature == parts[b"Signature"]:  # the signature comes last, so the head holds the whole claim
                self._remember(head, claim)
            signature = parts[b"Signature"]
        date = headers.get(b"x-amz-date")
        if date is None:
            date = _date_header(headers, claim, authorization)
        return _Signed(claim, signature, date, limits.CLOCK_SKEW_S, query)

    def _in_query(self, query: bytes) -> _Signed:
        parameters = dict(pairs(query))
        missing = [name.decode() for name in _IN_QUERY if name not in parameters]
        if missing:
            text = " ".join(f"AWS query-string parameters must include '{name}'." for name in missing)
            raise incomplete_signature(f"{text} Re-examine the query-string parameters.")
        if parameters[b"X-Amz-Algorithm"] != _ALGORITHM:
            raise incomplete_signature(f"Unsupported AWS 'algorithm': '{_shown(parameters[b'X-Amz-Algorithm'])}'.")
        credential, names = parameters[b"X-Amz-Credential"], parameters[b"X-Amz-SignedHeaders"]
        place = credential + b"\n" + names  # no header contains a line feed
        claim = self._claims.get(place)
        if claim is None:
            claim = self._claim(credential, names)
            self._remember(place, claim)
        unsigned_query = b"&".join(pair for pair in query.split(b"&") if not pair.startswith(b"X-Amz-Signature="))
        valid_s = _valid_s(parameters.get(b"X-Amz-Expires"))
        return _Signed(claim, parameters[_SIGNATURE], parameters[b"X-Amz-Date"], valid_s, unsigned_query)

    # --- claims ---

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
        return _Claim(key, region.decode(), b"/".join(parts[1:]), date, code, names, _DECISIVE.difference(names))


def _checked_signature(
    signed: _Signed, method: str, target: bytes, headers: Mapping[bytes, bytes], payload: bytes
) -> bytes:
    """Check that the key has made the signature, and return it in bytes."""
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
    """Return the three parts of an Authorization header, which may be in any order."""
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
    required = (b"Credential", b"Signature", b"SignedHeaders")
    missing = [
        f"Authorization header requires '{name.decode()}' parameter." for name in required if not parts.get(name)
    ]
    if missing:
        raise _missing_parts(missing, authorization)
    return parts


def _missing_parts(missing: list[str], authorization: bytes) -> SqsError:
    digest = f"(Hashed with SHA-256 and encoded with Base64) Authorization={_hashed(authorization)}"
    return incomplete_signature(f"{' '.join(missing)} {digest}")


def _hashed(text: bytes) -> str:
    return b64encode(sha256(text).digest()).decode()


def _shown(text: bytes) -> str:
    """Return the start of a client's text in printable ASCII, for an error text."""
    return text[:100].decode("latin-1").encode("unicode_escape").decode()


# --- time ---


def _date_header(headers: Mapping[bytes, bytes], claim: _Claim, authorization: bytes) -> bytes:
    """Return the signing time of a request without ``X-Amz-Date``."""
    date = headers.get(b"date")
    if date is None:
        text = "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        raise _missing_parts([text], authorization)
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
    """Parse a time in ISO 8601's basic format; return seconds since 1970."""
    if _DATE.fullmatch(date):
        with suppress(ValueError):
            return int(datetime.strptime(date.decode(), _BASIC).replace(tzinfo=UTC).timestamp())
    raise _bad_date(date)


def _bad_date(date: bytes) -> SqsError:
    text = f"Date must be in ISO-8601 'basic format'. Got '{_shown(date)}'."
    return incomplete_signature(f"{text} See http://en.wikipedia.org/wiki/ISO_8601")


def _valid_s(expires: bytes | None) -> int:
    """Return the validity of a presigned request, in seconds."""
    if expires is None:
        return limits.CLOCK_SKEW_S
    if not re.fullmatch(rb"[0-9]{1,6}", expires) or int(expires) > limits.PRESIGNED_S:
        text = f"X-Amz-Expires must be a number of seconds, at most a week, that is {limits.PRESIGNED_S}"
        raise incomplete_signature(f"{text}; got '{_shown(expires)}'.")
    return int(expires)


def _checked_time(signed: _Signed, now: float) -> int:
    """Check that the signature is valid now; return the end of its validity, in seconds since 1970."""
    date, valid_s = signed.date, signed.valid_s
    signed_s = _seconds(date)
    if signed_s + valid_s < now:
        bound = f"{_basic_time(now - valid_s)} ({_basic_time(now)} - {valid_s / 60:g} min.)"
        raise signature_does_not_match(f"Signature expired: {date.decode()} is now earlier than {bound}")
    if signed_s > now + limits.CLOCK_SKEW_S:
        bound = f"{_basic_time(now + limits.CLOCK_SKEW_S)} ({_basic_time(now)} + {limits.CLOCK_SKEW_S / 60:g} min.)"
        raise signature_does_not_match(f"Signature not yet current: {date.decode()} is still later than {bound}")
    if date[:8] != signed.claim.date:
        text = "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP"
        raise signature_does_not_match(
            f"{text}: '{_shown(signed.claim.date)}' != '{date[:8].decode()}', from '{date.decode()}'."
        )
    return signed_s + valid_s


def _basic_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(_BASIC)
