"""A money transfer: an amount leaves one account and arrives at the other exactly once, despite crashes.

An account is a group. A payment debits the payer's account, if it has enough money, and emits a booking for the
payee's account. ``deliver=`` names the pipeline's own queue, so the booking is sent in the commit that debits the
payer: the money is never missing, and never in both accounts. The effect id of the output becomes the id of the
booking. Run it with ``python examples/money_transfer.py``. It prints:

    ann has 60
    bob has 15, 1 declined
    cleo has 25
"""

from dataclasses import dataclass, replace

import inturn


@dataclass(frozen=True)
class Booking:
    """A payment to another account or, without ``to``, money that comes in."""

    id: str
    account: str
    amount: int
    to: str | None = None


@dataclass(frozen=True)
class Account:
    balance: int = 0
    declined: int = 0


def book(account: Account, booking: Booking) -> tuple[Account, list[dict[str, object]]]:
    if booking.to is None:
        return replace(account, balance=account.balance + booking.amount), []
    if booking.amount > account.balance:
        return replace(account, declined=account.declined + 1), []
    paid = replace(account, balance=account.balance - booking.amount)
    return paid, [{"account": booking.to, "amount": booking.amount}]


ACCOUNTS = inturn.Pipeline(
    name="accounts", group="account", order=inturn.Arrival(), id="id", handler=book, state=Account, message=Booking
)
BACK = inturn.ToQueue("bookings", group="account")

if __name__ == "__main__":
    with inturn.open(":memory:") as db:
        bookings = db.queue("bookings")
        bookings.send({"amount": 100}, group="ann", dedup_id="first")
        for payer, amount, payee, name in [
            ("ann", 40, "bob", "rent"),
            ("bob", 25, "cleo", "book"),
            ("bob", 25, "cleo", "two"),
        ]:
            inturn.work(ACCOUNTS, bookings, deliver=BACK, until="empty")
            for _ in range(2):  # the client was not sure
                bookings.send({"amount": amount, "to": payee}, group=payer, dedup_id=name)
        inturn.work(ACCOUNTS, bookings, deliver=BACK, until="empty")
        for each in db.pipeline("accounts").states():
            declined = f", {each.state['declined']} declined" if each.state["declined"] else ""
            print(f"{each.group} has {each.state['balance']}{declined}")
