"""A session: one receiver locks a whole group, as in Azure Service Bus, with a state that is stored between sessions.

A cinema sells the seats of a show one after the other, so a show is a group. The seller with the session of a show is
the only one to receive its messages, stores the sold seats in the session's state, and commits both together. If a
seller crashes, the lock expires. Run it with ``python examples/sessions.py``. It prints:

    ann has show-1, bob has show-2
    show-1 is locked for others: True
    ann sold A1 A2
    cleo continues after A1 A2 and sells A3
"""

import tempfile

import inturn
from inturn.database import Database
from inturn.queue import Session


def sell(db: Database, session: Session, most: int) -> list[str]:
    """Sell the waiting seats, and store them in the session's state in the same transaction."""
    sold = (session.state() or b"").decode().split()
    for message in session.receive(most):
        with db.transaction() as tx:
            sold.append(str(message.body))
            session.set_state(" ".join(sold).encode(), tx=tx)
            message.ack(tx)
    return sold


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, inturn.open(f"{folder}/cinema.db") as db:
        seats = db.queue("seats")
        for show, seat in [("show-1", "A1"), ("show-2", "C7"), ("show-1", "A2"), ("show-1", "A3")]:
            seats.send(seat, group=show)
        ann, bob = seats.session(), seats.session()
        assert ann is not None
        assert bob is not None
        print(f"ann has {ann.group}, bob has {bob.group}")
        print("show-1 is locked for others:", seats.session("show-1") is None)
        with ann, bob:
            print("ann sold", *sell(db, ann, most=2))

        cleo = seats.session("show-1")
        assert cleo is not None
        with cleo:
            before = (cleo.state() or b"").decode()
            print(f"cleo continues after {before} and sells {sell(db, cleo, most=2)[-1]}")


if __name__ == "__main__":
    main()
