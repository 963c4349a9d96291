"""A poison message: its account stops and is repaired; the other accounts continue.

Run it with ``python examples/poison_message.py``. It prints:

    bob {'balance': 8}
    ann failed, 2 messages wait: ValueError: amount 'twelve' is not a number
    would become {'balance': 17}
    ann {'balance': 17}
"""

import tempfile
from typing import Any

import inturn


def apply(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    if message["amount"] == "twelve":
        raise ValueError(f"amount {message['amount']!r} is not a number")
    return {"balance": state.get("balance", 0) + message["amount"]}, []


ledger = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=apply)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, inturn.open(f"{folder}/bank.db") as db:
        payments = db.queue("payments")
        for account, revision, amount in [("ann", 1, "twelve"), ("ann", 2, 5), ("bob", 1, 8)]:
            payments.send({"amount": amount}, group=account, revision=revision)
        inturn.work(ledger, payments, until="empty")
        results = db.pipeline("ledger")
        print("bob", results.state("bob"))
        for parked in results.parked():
            print(
                f"{parked.group} {parked.status}, {parked.held} messages wait: {(parked.error or '').splitlines()[-1]}"
            )

        (trial,) = inturn.dry_run(ledger, results, "replace", "ann", content={"amount": 12})
        print("would become", trial.to_dict()["state"])
        results.replace("ann", content={"amount": 12}, by="eve", why="the form sent a word")
        inturn.work(ledger, payments, until="empty")
        print("ann", results.state("ann"))


if __name__ == "__main__":
    main()
