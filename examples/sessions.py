"""A session: one receiver has a whole group, as in Azure Service Bus, with a state that outlives it.

A cinema sells the seats of one show after the other, so a show is a group. The seller who has its session sees its
messages alone, keeps what was sold in the session's state, and commits both together. A seller who dies keeps nobody
out: the lock ends by itself. Run it with ``python examples/sessions.py``. It prints:

    ann has show-1, bob has show-2
    nobody else gets show-1: True
    ann sold A1 A2
    cleo goes on with A1 A2, and sells A3
"""

import tempfile

import inturn
from inturn.database import Database
from inturn.queue import Session


def sell(db: Database, session: Session, most: int) -> list[str]:
    """Sell the seats that wait, and keep them in the session's state in the same transaction."""
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
        print("nobody else gets show-1:", seats.session("show-1") is None)
        with ann, bob:
            print("ann sold", *sell(db, ann, most=2))

        cleo = seats.session("show-1")
        assert cleo is not None
        with cleo:
            before = (cleo.state() or b"").decode()
            print(f"cleo goes on with {before}, and sells {sell(db, cleo, most=2)[-1]}")


if __name__ == "__main__":
    main()
