"""The bank's HTTP API: a payment is accepted once, whatever is repeated or killed.

The payment's row, its message and the stored response are one transaction.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import prometheus_client
from bank import DATABASE, TABLES
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field

import inturn
import inturn.telemetry
from inturn.idempotency import IdempotencyMiddleware, KeyedRequest, StoredResponse
from inturn.idempotency.fastapi import requires_key
from inturn.queue import QueueSettings

db = inturn.open(DATABASE)
payments = db.queue("payments", QueueSettings(visibility_timeout_s=10))
inturn.telemetry.prometheus(db)
accepted = prometheus_client.Counter("bank_payments_accepted", "Payments that were accepted.")


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Make the bank's own tables."""
    with db.transaction() as tx:
        for table in TABLES:
            tx.execute(table)
    yield
    db.close()


app = FastAPI(lifespan=lifespan)
app.add_middleware(IdempotencyMiddleware, keys=db.idempotency_keys("payments"), timeout_s=5)


class Payment(BaseModel):
    """The body of a request."""

    amount: int = Field(ge=-(2**53), le=2**53)


@app.post("/accounts/{account}/payments", status_code=202)
def pay(account: str, payment: Payment, request: Annotated[KeyedRequest, Depends(requires_key)]) -> JSONResponse:
    """Accept a payment; the worker posts or declines it."""
    name = str(uuid.uuid4())
    response = JSONResponse({"payment": name}, 202)
    stored = StoredResponse(202, tuple(response.headers.items()), bytes(response.body))
    with db.transaction() as tx:
        tx.execute("insert into payment (id, account, amount) values (%s, %s, %s)", (name, account, payment.amount))
        payments.send({"id": name, "amount": payment.amount}, group=account, dedup_id=name, tx=tx)
        db.idempotency_keys("payments").accept(request.lock, stored.result(), tx=tx)
    accepted.inc()
    return response


@app.get("/accounts/{account}")
def account(account: str) -> dict[str, int]:
    """Return the balance, as far as the worker has come."""
    try:
        state: dict[str, int] = db.pipeline("ledger").state(account)
    except KeyError as error:  # no message of it has been applied yet
        raise HTTPException(404, f"there is no account {account!r}") from error
    return state


@app.get("/ready")
def ready() -> dict[str, str]:
    """Answer as long as the database does."""
    db.queues()
    return {"status": "ok"}


@app.get("/metrics", response_class=PlainTextResponse)
def metrics() -> bytes:
    """Show the metrics to Prometheus: the service's own, and those of its queue and its pipeline."""
    return prometheus_client.generate_latest()
