"""A bank's pipeline: payments of an account, applied in the order in which they were accepted."""

import dataclasses

import psycopg

import inturn

DATABASE = "postgresql:///bank"
"""PGHOST, PGUSER and the other variables of libpq say which server that is."""

TABLES = (
    "create table if not exists payment (id uuid primary key, account text not null, amount bigint not null)",
    "create table if not exists notice (effect_id text primary key, payment uuid not null, status text not null)",
)


@dataclasses.dataclass
class Account:
    """The state of an account."""

    balance: int = 0
    payments: int = 0


def apply(account, payment):
    """Post a payment, or decline one that would overdraw the account."""
    if account.balance + payment["amount"] < 0:
        return account, [{"payment": payment["id"], "status": "declined"}]
    posted = Account(account.balance + payment["amount"], account.payments + 1)
    return posted, [{"payment": payment["id"], "status": "posted"}]


ledger = inturn.Pipeline(name="ledger", group="account", order=inturn.Arrival(), id="id", state=Account, handler=apply)


def notify(output, effect_id):
    """Record what became of a payment. It may be called again after a crash; the effect id makes that harmless."""
    with psycopg.connect(DATABASE) as connection:
        connection.execute(
            "insert into notice values (%s, %s, %s) on conflict do nothing",
            (effect_id, output["payment"], output["status"]),
        )
