"""A worker that writes its outputs into a table of its own database, to be killed: python table_worker.py DATABASE."""

import sys

import inturn
from inturn import deliver

address = sys.argv[1]
LEDGER = inturn.Pipeline(
    name="ledger",
    group="account",
    order=inturn.Gapless("n"),
    handler=lambda state, message: (state, [{"account": message["account"], "amount": message["n"]}]),
)
with inturn.open(address) as db:
    post = deliver.table(address, "postings", {"account": "account", "amount": "amount"})
    inturn.work(LEDGER, db.queue("payments"), deliver=post, until="empty")
