"""A worker that posts its outputs, to be killed: python http_worker.py DATABASE URL."""

import sys

import inturn
from inturn import deliver
from inturn.core import limits

limits.OUTBOX_LEASE_S = 0.3  # type: ignore[misc] # the next life need not wait long for this one's claims
path, url = sys.argv[1:]
LEDGER = inturn.Pipeline(
    name="ledger",
    group="account",
    order=inturn.Gapless("revision"),
    handler=lambda state, message: (state, [{"account": message["account"], "n": message["revision"]}]),
)
with inturn.open(path) as db:
    retry = inturn.Retry(1, "10 milliseconds")
    inturn.work(LEDGER, db.queue("payments"), deliver=deliver.http(url), retry=retry, until="empty")
