"""The request checks of an endpoint without keys: local programs are accepted, web pages open in a browser are not.

A page's requests are recognised by the headers that browsers add, and by a host that is not this machine's: a page's
own host name may resolve to this machine (DNS rebinding).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

from inturn.serving.http.http1 import Request
from inturn.serving.listening import is_loopback
from inturn.sqs import limits
from inturn.sqs.context import Permit
from inturn.sqs.errors import access_denied, signature_does_not_match
from inturn.sqs.events import EVENTS
from inturn.sqs.naming import RequestOrigin, is_region
from inturn.sqs.wire import ApiCall

_ANONYMOUS: Final = Permit(RequestOrigin())

READING: Final = frozenset(
    (
        *("GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues", "ListMessageMoveTasks", "ListQueueTags"),
        "ListQueues",
    )
)
"""The actions that only read. ReceiveMessage is not one of them, since it hides messages."""

_SETTING: Final = frozenset(("AddPermission", "CreateQueue", "SetQueueAttributes"))
"""The actions that may set a policy."""

_IN_A_PAGE: Final = (b"text/html", b"text/css", b"image/")
"""The start of ``Accept`` values that browsers send for a page's content, and SQS clients never do."""

_NAME: Final = b"Credential="
_IN_QUERY: Final = b"X-Amz-Credential="


class LoopbackAccess:
    """The checks of each API request, for endpoints without keys.

    The host of the base URL is accepted too. Signed requests must be signed for the region; None: any.
    """

    def __init__(self, base_url: str | None = None, region: str | None = None) -> None:
        self._region = region
        self._own = urlsplit(base_url or "").hostname
        self._has_warned = False
        self.is_own = lru_cache(limits.HOSTS)(self._is_own)
        self._caller = lru_cache(limits.CLAIMS)(self._permit_for)

    def admit(self, head: Request) -> None:
        """Refuse a request of a web page by its head."""
        headers = head.headers
        from_page = b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none"
        if from_page or not self.is_own(headers.get(b"host", b"")):
            raise access_denied(
                "This endpoint has no access keys, so it refuses requests from web pages, and requests to a host that "
                "is neither this machine nor the host of base_url. Configure access keys, or base_url."
            )

    def authenticate(self, request: Request) -> None:
        """Check the head again; requests need no signature."""
        self.admit(request)

    def authorize(self, _signer: None, request: Request, call: ApiCall) -> Permit:
        """Check that no page changes anything by a request that browsers send without a preflight.

        A page may load a request's address as an image, or send a form. A request with an ``Authorization`` header
        passes, since a page cannot add that header. A signature in the query proves nothing, as it cannot be verified
        without keys. The region that a request is signed for is not
        verified; it must be valid, and equal to the required region, if any.
        """
        headers = request.headers
        if call.action not in READING and b"authorization" not in headers:
            accepted = headers.get(b"accept", b"").lower()
            is_shown = request.method != "POST" and any(kind in accepted for kind in _IN_A_PAGE)
            if is_shown or not _is_from(headers.get(b"referer"), headers.get(b"host", b"")):
                raise access_denied(
                    "This endpoint has no access keys, so it refuses changes by requests that a browser may have sent: "
                    "with the address of another page as Referer, or as a GET that accepts text/html or images. "
                    "Send it by POST, without a Referer; or configure access keys and sign it."
                )
        if call.action in _SETTING:
            params: Any = call.params
            if call.action == "AddPermission" or params.attributes.get("Policy"):
                self.warn_of_policies()
        scope = credential(request.target, headers)
        return _ANONYMOUS if scope is None else self._caller(scope)

    def warn_of_policies(self) -> None:
        """Log, once, that policies are stored but not applied."""
        if not self._has_warned:
            self._has_warned = True
            text = "queue policies do not apply: without access keys every client counts as the owner"
            EVENTS.warning("policies_ignored", "", text)

    def _permit_for(self, scope: bytes) -> Permit:
        region = scoped_region(scope)
        if region is not None and self._region not in (region, None):
            raise signature_does_not_match("Credential should be scoped to a valid region.")
        return Permit(RequestOrigin("", region))

    def _is_own(self, host: bytes) -> bool:
        try:
            name = urlsplit(f"//{host.decode('latin-1')}").hostname or "localhost"  # HTTP/1.0 needs no Host
        except ValueError:
            return False
        return is_loopback(name) or name.endswith(".localhost") or name == self._own


def _is_from(referer: bytes | None, host: bytes) -> bool:
    """Return whether a request has no referring page, or one of this host and port."""
    if not referer:
        return True
    try:
        return urlsplit(referer.decode("latin-1")).netloc.lower() == host.decode("latin-1").lower()
    except ValueError:
        return False


# --- the region of a request, whose signature is not verified ---


def credential(target: bytes, headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the part of a request with its credential, the same for many requests; None if it is not signed."""
    authorization = headers.get(b"authorization")
    if authorization is None:
        text, begin, after = target, target.find(_IN_QUERY), b"&"
    else:
        text, begin, after = authorization, authorization.find(_NAME), b","
    if begin < 0:
        return None
    most = begin + limits.CREDENTIAL_BYTES
    end = text.find(after, begin, most)
    return text[begin : most if end < 0 else end]


def scoped_region(credential_text: bytes) -> str | None:
    """Return the region of a :func:`credential`, quoted or not; refuse an invalid one.

    As in ``Credential=key/20261123/us-east-1/sqs/aws4_request``.
    """
    parts = unquote_to_bytes(credential_text.partition(_NAME)[2]).rsplit(b"/", 4)
    if len(parts) < 5:
        return None
    region = parts[2].decode("latin-1")
    if not is_region(region):
        text = f"Credential should be scoped to a valid region (lower-case letters, digits, hyphens), not {region!r}."
        raise signature_does_not_match(text)
    return region
