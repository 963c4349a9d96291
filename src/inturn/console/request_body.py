"""The fields of a form or of a JSON object, read with a greatest size and time, and checked against its route."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import ClientDisconnect, Request

from inturn.console.refusal import RequestRefused
from inturn.console.routes import RouteField
from inturn.core.errors import InputError
from inturn.core.texts import checked_text

BODY: Final = 2 * 1024 * 1024
"""The greatest size of a form, in bytes: a message of the greatest size, encoded for a form."""
BODY_S: Final = 30.0
"""The time in which a client must have sent a body, in seconds."""
_FIELDS: Final = 10_000
"""The greatest number of fields of a form."""


async def form_fields(request: Request, timeout_s: float = BODY_S) -> dict[str, str]:
    """Return the fields of a form of one of the console's own pages.

    Raises:
        RequestRefused: if it comes from another site, is too large, or takes too long.
        InputError: if it is no form.
    """
    body = await _body(request, timeout_s)
    try:
        text = body.decode()
        form = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError as error:
        raise InputError(f"the form is not readable: {error}") from error
    return {name: values[-1] for name, values in form.items()}


async def json_fields(request: Request, fields: Sequence[RouteField], timeout_s: float = BODY_S) -> dict[str, str]:
    """Return the fields of a JSON object as those of a form.

    Args:
        request: the request.
        fields: the fields that the route takes.
        timeout_s: the time in which the body must be there.

    Raises:
        RequestRefused: if it comes from another site, is no JSON, is too large, or takes too long.
        InputError: if it is no object, lacks a field, or has one of another name or type.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestRefused("the body is not application/json", 415)
    body = await _body(request, timeout_s)
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not readable: {error}") from error
    if not isinstance(found, dict):
        raise InputError("the body is not a JSON object")
    known = {each.name: each for each in fields}
    given: dict[str, str] = {}
    for name, value in found.items():
        if name not in known:
            raise InputError(f"there is no field {checked_text('field', name)!r}; there are {', '.join(known)}")
        if known[name].is_number:
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"the field {name!r} is {value!r}; it is a whole number")
            given[name] = str(value)
        else:
            given[name] = checked_text(f"field {name!r}", value)
    for each in fields:
        if each.is_needed and each.name not in given:
            raise InputError(f"the request has no {each.name!r}")
    return given


def query_fields(request: Request, fields: Sequence[RouteField]) -> dict[str, str]:
    """Return the fields of a query of the API.

    Raises:
        InputError: if it lacks a field, has one twice, or one of another name or type.
    """
    known = {each.name: each for each in fields}
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise InputError(f"there is no field {name!r}; there are {', '.join(known) or 'none'}")
        if name in given:
            raise InputError(f"the field {name!r} is there twice")
        if known[name].is_number and not value:
            raise InputError(f"the field {name!r} is empty; it is a whole number")
        given[name] = value
    for each in fields:
        if each.is_needed and each.name not in given:
            raise InputError(f"the request has no {each.name!r}")
    return given


def check_origin(headers: Mapping[str, str]) -> None:
    """Check that a browser does not say that a request comes from another site; other clients say nothing.

    Raises:
        RequestRefused: if it does.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    try:
        is_own = origin is None or urlsplit(origin).netloc == headers.get("host")
    except ValueError:  # http://[
        is_own = False
    if not is_own or (site is not None and site not in {"same-origin", "none"}):
        raise RequestRefused("the form comes from another site", 403)


async def _body(request: Request, timeout_s: float) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.stream():
                body += part
                if len(body) > BODY:
                    raise RequestRefused(f"the form has more than {BODY:,} bytes", 413)
    except TimeoutError:
        raise RequestRefused(f"the body has not come within {timeout_s:g} s", 408) from None
    except ClientDisconnect:
        raise RequestRefused("the body ended before its end", 400) from None
    return bytes(body)
