"""A FastAPI dependency for operations that need an ``Idempotency-Key``, over the middleware of asgi.py."""

from typing import Annotated

from fastapi import Header, Request

from inturn.core.errors import SetupError
from inturn.idempotency.asgi import IN_SCOPE, KeyedRequest, KeyMissing


async def requires_key(
    request: Request,
    _key: Annotated[str | None, Header(alias="Idempotency-Key", description="Repeated requests run once.")] = None,
) -> KeyedRequest:
    """Return the key and the lock of a request; ``Annotated[KeyedRequest, Depends(requires_key)]``.

    A request without a key is answered with 400.

    Raises:
        SetupError: if the application has no :class:`~inturn.idempotency.asgi.IdempotencyMiddleware`, or the middleware
            does not handle this method.
    """
    if IN_SCOPE not in request.scope:
        raise SetupError(
            f"{request.method} {request.url.path} requires a key, but no IdempotencyMiddleware handles it: call "
            "app.add_middleware(IdempotencyMiddleware, keys=keys), with methods= for methods other than POST and PATCH"
        )
    keyed: KeyedRequest | None = request.scope[IN_SCOPE]
    if keyed is None:
        raise KeyMissing("this operation requires an Idempotency-Key")
    return keyed
