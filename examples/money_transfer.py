"""A money transfer: what leaves one account arrives at the other, once, whatever crashes in between.

An account is a group, so its bookings are applied one after the other. A payment takes the money from the payer's
account, if it is there, and emits a booking for the payee's account. ``deliver=`` names the queue of the pipeline
itself, so that booking is sent in the commit that takes the money: there is no moment at which the money is nowhere, or
in both accounts. The sum of all balances and of the bookings on their way never changes.

The effect id of the output becomes the id of the booking. The queue knows a booking that is sent twice by its id, and
so does ``Arrival()``.

Run it with ``python examples/money_transfer.py``. It prints:

    ann has 60
    bob has 15, 1 declined
    cleo has 25
    100 in all
"""

from dataclasses import dataclass, replace

import inturn
from inturn.worker.inspection import DatabaseInspector


@dataclass(frozen=True)
class Booking:
    """A payment to another account or, without ``to``, money that comes in."""

    id: str
    account: str
    amount: int
    to: str | None = None


@dataclass(frozen=True)
class Account:
    """The money of an account, and the number of payments for which there was not enough."""

    balance: int = 0
    declined: int = 0


def book(account: Account, booking: Booking) -> tuple[Account, list[dict[str, object]]]:
    """Apply a booking; return the account and, for a payment, the booking for the payee."""
    if booking.to is None:
        return replace(account, balance=account.balance + booking.amount), []
    if booking.amount > account.balance:
        return replace(account, declined=account.declined + 1), []
    paid = replace(account, balance=account.balance - booking.amount)
    return paid, [{"account": booking.to, "amount": booking.amount}]


ACCOUNTS = inturn.Pipeline(
    name="accounts", group="account", order=inturn.Arrival(), id="id", handler=book, state=Account, message=Booking
)
BACK = inturn.To("bookings", group="account")


def main() -> None:
    """Transfer money between three accounts."""
    with inturn.open(":memory:") as db:
        bookings = db.queue("bookings")
        bookings.send({"amount": 100}, group="ann", dedup_id="first")
        inturn.work(ACCOUNTS, bookings, deliver=BACK, until="empty")
        bookings.send({"amount": 40, "to": "bob"}, group="ann", dedup_id="rent")
        bookings.send({"amount": 40, "to": "bob"}, group="ann", dedup_id="rent")  # the client was not sure
        inturn.work(ACCOUNTS, bookings, deliver=BACK, until="empty")
        bookings.send({"amount": 25, "to": "cleo"}, group="bob", dedup_id="book")
        bookings.send({"amount": 25, "to": "cleo"}, group="bob", dedup_id="another")
        inturn.work(ACCOUNTS, bookings, deliver=BACK, until="empty")
        look, total = DatabaseInspector(db, "accounts"), 0
        for name in ("ann", "bob", "cleo"):
            state = look.group(name).state
            declined = f", {state['declined']} declined" if state["declined"] else ""
            print(f"{name} has {state['balance']}{declined}")
            total += state["balance"]
        print(f"{total} in all")


if __name__ == "__main__":
    main()
