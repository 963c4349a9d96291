"""The loss of a connection to PostgreSQL during a commit."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from inturn.database import Database
from inturn.store.postgres import statements


def lose_commit(db: Database, monkeypatch: pytest.MonkeyPatch, before: Callable[[], None] | None = None) -> None:
    """Lose the connection during the next commit: after the server has done it, or by what is done before."""
    wire = db.store.wire  # type: ignore[attr-defined]
    exchange, say = statements._exchange, wire.queue_text
    committing: list[str] = []

    def saying(text: str) -> Any:
        committing[:] = [text] if text == "commit" else []
        if committing and before is not None:
            monkeypatch.setattr(wire, "queue_text", say)
            before()
        return say(text)

    def lose(pg: Any) -> Any:
        is_commit = bool(committing)
        result = yield from exchange(pg)
        if is_commit:
            monkeypatch.setattr(statements, "_exchange", exchange)
            monkeypatch.setattr(wire, "queue_text", say)
            pg.finish()
            msg = "server closed the connection unexpectedly"
            raise psycopg.OperationalError(msg)
        return result

    monkeypatch.setattr(wire, "queue_text", saying)
    if before is None:
        monkeypatch.setattr(statements, "_exchange", lose)
