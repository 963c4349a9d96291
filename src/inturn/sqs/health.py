"""The pages of :mod:`inturn.serving.health` for an endpoint, at another address than its API.

They answer from a thread with what the event loop tells them, so a loop that hangs is reported as not ready.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from inturn.core.errors import StoreUnavailable
from inturn.serving.asgi import AsgiServer
from inturn.serving.health import health_server
from inturn.sqs import limits
from inturn.sqs.metrics import Metrics
from inturn.sqs.pages import Pages

T = TypeVar("T")


def health_endpoint(address: str, pages: Pages, metrics: Metrics) -> AsgiServer:
    """Return the health endpoint of an endpoint that runs in the running event loop.

    Raises:
        InputError: if the address is malformed, or cannot be listened on.
    """
    loop = asyncio.get_running_loop()

    def asked(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(ask(), loop).result(2 * limits.HEALTH_S)
        except TimeoutError as error:
            raise StoreUnavailable("the endpoint does not answer") from error

    def status() -> dict[str, Any]:
        try:
            is_ready, document = asked(pages.status)
        except StoreUnavailable as error:
            is_ready, document = False, {"status": "unavailable", "error": str(error)}
        return {"ready": is_ready, **document}

    return health_server(address, status, lambda: asked(metrics.page))
