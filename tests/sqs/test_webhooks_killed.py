"""An endpoint that is killed at every point has every webhook that it accepted, once; senders send the others again."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import webhook_senders as sender
from webhook_senders import encoded, post

import inturn
from inturn.demo.free_ports import free_port
from inturn.faults import OF_A_TRANSACTION
from inturn.testing.history import AppliedEffect, SendCall, check_or_raise
from lives import Death, deaths

pytestmark = [pytest.mark.slow, pytest.mark.soak]

LIVES = 3
WAIT_S = 60
CONFIG = f"""
[[webhooks]]
name = "shop"
queue = "orders"
signature = "standard"
secrets = ["{sender.STANDARD}"]

[webhooks.mapping]
group = "body.order"
revision = "body.n"
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_killed_endpoint_stores_every_accepted_webhook_exactly_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, soak_seed: int, soak_times: int
) -> None:
    chance = random.Random(soak_seed)
    address = str(request.getfixturevalue("postgres_url") if kind == "postgres" else tmp_path / "shop.db")
    config = tmp_path / "inturn.toml"
    config.write_text(CONFIG)
    port = free_port()
    command = [sys.executable, "-m", "inturn", "serve", "--db", address, "--port", str(port), "--config", str(config)]
    accepted: list[tuple[str, int]] = []
    number = 0
    for point, _ in [*deaths(OF_A_TRANSACTION, soak_times * LIVES, chance, reached=(6, 30), after_s=None), Death("")]:
        server = subprocess.Popen(command, env=os.environ | {"INTURN_KILL_AT": point}, stderr=subprocess.DEVNULL)
        for _ in range(60 if point else 15):
            if not _is_accepted(port, server, number):
                break
            accepted.append((f"a{number % 3}", number))
            number += 1
        server.terminate()
        assert server.wait(WAIT_S) == (-signal.SIGKILL if point else 0)
    assert number > 15
    with inturn.open(address) as db:
        messages = db.queue("orders").peek(1000)
    last = (f"a{number % 3}", number)  # perhaps committed, though the sender had no answer
    pairs = [(str(message.group), int(message.revision or 0)) for message in messages]
    check_or_raise(
        [
            *(
                SendCall(client="sender", asked=n, answered=n, dedup_id=str(n), group=group, body="", number=n)
                for group, n in [*accepted, last][: max(len(accepted), len(pairs))]
            ),
            *(
                AppliedEffect(client="queue", asked=position, dedup_id=str(n), group=group, number=n, place=position)
                for position, (group, n) in enumerate(pairs)
            ),
        ]
    )
    assert [n for _, n in pairs] == list(range(len(pairs)))


def _is_accepted(port: int, server: "subprocess.Popen[bytes]", number: int) -> bool:
    """Send until it is accepted, as senders do; False if the server has died."""
    body = encoded({"order": f"a{number % 3}", "n": number})
    until = time.monotonic() + WAIT_S
    while server.poll() is None:
        assert time.monotonic() < until
        try:
            return (
                post(f"http://127.0.0.1:{port}/webhooks/shop", body, sender.standard(f"m{number}", body)).status == 202
            )
        except OSError:  # not up yet, or killed
            time.sleep(0.05)
    return False
