"""The fields of a form or of a JSON object, read with a limit of size and time, and checked against its route."""

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
"""The maximum size of a form, in bytes: a message of the maximum size, encoded for a form."""
BODY_S: Final = 30.0
"""The time in which a client must send the body, in seconds."""
_FIELDS: Final = 10_000
"""The maximum number of fields of a form."""


async def form_fields(request: Request, timeout_s: float = BODY_S) -> dict[str, str]:
    """Return the fields of a form of one of the console's own pages.

    Raises:
        RequestRefused: if it was sent from another site, is too large, or takes too long.
        InputError: if it is not a form.
    """
    body = await _body(request, timeout_s)
    try:
        text = body.decode()
        form = parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError as error:
        raise InputError(f"the form cannot be parsed: {error}") from error
    return {name: values[-1] for name, values in form.items()}


async def json_fields(request: Request, fields: Sequence[RouteField], timeout_s: float = BODY_S) -> dict[str, str]:
    """Return the fields of a JSON object like those of a form.

    Args:
        request: the request.
        fields: the fields that the route takes.
        timeout_s: the time in which the body must arrive.

    Raises:
        RequestRefused: if it was sent from another site, is not JSON, is too large, or takes too long.
        InputError: if it is not an object, lacks a field, or has an unknown field or one of a wrong type.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestRefused("the content type is not application/json; send a JSON object", 415)
    body = await _body(request, timeout_s)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body cannot be parsed: {error}") from error
    if not isinstance(document, dict):
        raise InputError("the body is not a JSON object")
    known = {field.name: field for field in fields}
    values: dict[str, str] = {}
    for name, value in document.items():
        if name not in known:
            raise InputError(f"no field {checked_text('field', name)!r}; valid fields: {', '.join(known)}")
        if known[name].is_number:
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"the field {name!r} is {value!r}; expected a whole number")
            values[name] = str(value)
        else:
            values[name] = checked_text(f"field {name!r}", value)
    for field in fields:
        if field.is_needed and field.name not in values:
            raise InputError(f"the field {field.name!r} is missing")
    return values


def query_fields(request: Request, fields: Sequence[RouteField]) -> dict[str, str]:
    """Return the fields of a query of the API.

    Raises:
        InputError: if it lacks a field, or has a field twice, an unknown field or one of a wrong type.
    """
    known = {field.name: field for field in fields}
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise InputError(f"no field {name!r}; valid fields: {', '.join(known) or 'none'}")
        if name in values:
            raise InputError(f"the field {name!r} occurs twice; give it once")
        if known[name].is_number and not value:
            raise InputError(f"the field {name!r} is empty; expected a whole number")
        values[name] = value
    for field in fields:
        if field.is_needed and field.name not in values:
            raise InputError(f"the field {field.name!r} is missing")
    return values


def check_origin(headers: Mapping[str, str]) -> None:
    """Check that a browser's headers do not name another site as origin; other clients do not send them.

    Raises:
        RequestRefused: if they do.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    try:
        is_own = origin is None or urlsplit(origin).netloc == headers.get("host")
    except ValueError:  # http://[
        is_own = False
    if not is_own or (site is not None and site not in {"same-origin", "none"}):
        raise RequestRefused("the form was sent from another site; use the form of this console", 403)


async def _body(request: Request, timeout_s: float) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.stream():
                body += part
                if len(body) > BODY:
                    raise RequestRefused(f"the body has more than {BODY:,} bytes", 413)
    except TimeoutError:
        raise RequestRefused(f"the body was not received within {timeout_s:g} s", 408) from None
    except ClientDisconnect:
        raise RequestRefused("the client disconnected before the end of the body", 400) from None
    return bytes(body)
