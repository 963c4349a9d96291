"""Outputs are posted with their effect id and a signature; statuses are final or not."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

import inturn
from clocks import Clock
from deliver.conftest import Bank
from inturn import deliver
from inturn.core.errors import DeliveryError, DeliveryRefused, InputError
from inturn.deliver import http_sink
from inturn.queue import QueueSettings
from inturn.testing.history import AppliedEffect, SendCall, check_or_raise

SECRET, OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
PROGRAM = Path(__file__).parent / "programs" / "http_worker.py"


def test_an_output_is_posted_with_its_effect_id_and_a_signature(bank: Bank) -> None:
    deliver.http(bank.url, secret=[SECRET, OTHER], headers={"Authorization": "Bearer x"})({"paid": "5 €"}, "e1")
    ((headers, body),) = bank.posted
    assert headers["idempotency-key"] == '"e1"'
    assert (headers["content-type"], headers["authorization"]) == ("application/json", "Bearer x")
    for secret in (SECRET, OTHER):
        assert Webhook(secret).verify(body, headers) == {"paid": "5 €"}
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body.replace(b"5", b"6"), headers)
    deliver.http(bank.url)(1, "e2")
    assert "webhook-signature" not in bank.posted[1][0]


@pytest.mark.parametrize("status", [400, 402, 405, 410, 413, 422, 301, 307])
def test_a_permanent_http_status_raises_delivery_refused(bank: Bank, status: int) -> None:
    bank.answers = [status]
    with pytest.raises(DeliveryRefused, match=f"/postings answered {status} .*: because"):
        deliver.http(bank.url)({}, "e")
    assert len(bank.posted) == 1, "no redirect is followed"


@pytest.mark.parametrize("status", [401, 403, 404, 408, 409, 425, 429, 500, 502, 503, 0])
def test_a_temporary_http_status_raises_a_retryable_delivery_error(bank: Bank, status: int) -> None:
    bank.answers = [status]
    post = deliver.http(bank.url)
    with pytest.raises(DeliveryError, match=r"answered|cannot be reached") as error:
        post({}, "e")
    assert not isinstance(error.value, DeliveryRefused)
    post({}, "e")
    assert [headers["idempotency-key"] for headers, _ in bank.posted] == ['"e"', '"e"']


def failure(post: deliver.http) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        post({}, "e")
    return caught.value


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_status_that_a_deploy_causes_is_final_only_after_denied_s(
    bank: Bank, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(http_sink, "time", SimpleNamespace(monotonic=clock.s, time=time.time))
    post = deliver.http(bank.url, denied_s=60)
    for answers in ([], [503], [0], [200]):  # any other answer begins the time anew
        bank.answers = [status, *answers, status]
        assert not isinstance(failure(post), DeliveryRefused)
        clock.forward(61)
        if answers == [200]:
            post({}, "e")
        elif answers:
            failure(post)
        assert isinstance(failure(post), DeliveryRefused) == (not answers)
    bank.answers = [status]
    assert isinstance(failure(deliver.http(bank.url, denied_s=0)), DeliveryRefused)


@pytest.mark.parametrize("status", [404, 409, 429, 503])
@pytest.mark.parametrize(
    ("text", "wanted_s"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("%a, %d %b %Y %H:%M:%S GMT", 3_000),
        ("%A, %d-%b-%y %H:%M:%S GMT", 3_000),
        ("%a %b %e %H:%M:%S %Y", 3_000),
        ("", 0),
        ("soon", 0),
        ("-5", 0),
        ("1.5", 0),
        ("120, 60", 0),
        ("9" * 5_000, 0),
        ("Sun, 99 Nov 1994 08:49:37 GMT", 0),
    ],
)
def test_retry_after_is_parsed_and_ignored_if_invalid(bank: Bank, status: int, text: str, wanted_s: float) -> None:
    text = time.strftime(text, time.gmtime(time.time() + wanted_s))  # the three forms of a date in RFC 9110
    bank.answers, bank.retry_after = [status], text
    assert failure(deliver.http(bank.url)).retry_after_s == pytest.approx(wanted_s, abs=600 if wanted_s > 120 else 0)


def pipeline() -> inturn.Pipeline[Any, Any, Any]:
    return inturn.Pipeline(
        name="ledger",
        group="account",
        order=inturn.Gapless("revision"),
        handler=lambda state, message: (state, [message["revision"]]),
    )


@pytest.mark.parametrize("status", [404, 429])
def test_a_worker_waits_for_retry_after(bank: Bank, tmp_path: Path, status: int) -> None:
    bank.answers, bank.retry_after = [status], "1"
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        payments = db.queue("payments")
        payments.send({"account": "a", "revision": 1}, group="a", revision=1)
        retry = inturn.Retry(1, "10 milliseconds")
        inturn.work(pipeline(), payments, deliver=deliver.http(bank.url), retry=retry, until="empty")
    first_s, second_s = bank.came_s
    assert second_s - first_s > 0.99


def test_retry_after_is_capped(bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inturn.core.limits.DELIVER_RETRY_AFTER_S", 0.1)
    bank.answers, bank.retry_after = [429], "9" * 1_000
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        payments = db.queue("payments")
        payments.send({"account": "a", "revision": 1}, group="a", revision=1)
        retry = inturn.Retry(1, "10 milliseconds")
        inturn.work(pipeline(), payments, deliver=deliver.http(bank.url), retry=retry, until="empty")
    assert len(bank.posted) == 2


def test_an_unreachable_url_is_retryable_and_shown_without_its_password() -> None:
    with pytest.raises(DeliveryError, match=r"http://me@127\.0\.0\.1:9/ cannot be reached") as error:
        deliver.http("http://me:geheim@127.0.0.1:9/")({}, "e")
    assert "geheim" not in str(error.value)


def test_invalid_http_sink_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="begins with https:// or http://"):
        deliver.http("file:///etc/passwd")
    for wrong in (-1, float("nan")):
        with pytest.raises(InputError, match=rf"denied_s is {wrong}; expected a number of seconds"):
            deliver.http("http://x", denied_s=wrong)
    with pytest.raises(InputError, match="the secret is not valid") as error:
        deliver.http("http://x", secret=["whsec_geheim!"])
    assert "geheim" not in str(error.value)


@pytest.mark.slow
@pytest.mark.soak
def test_a_killed_worker_repeats_posts_with_the_same_idempotency_key(
    bank: Bank, tmp_path: Path, soak_seed: int
) -> None:
    path, killed = tmp_path / "shop.db", 0
    with inturn.open(path) as db:
        payments = db.queue("payments", QueueSettings(visibility_timeout_s=1))
        for revision in range(1, 21):
            for account in "abc":
                payments.send({"account": account, "revision": revision}, group=account, revision=revision)
    bank.answers = [200, 503, 0, 200, 500] * 10
    for life in range(20):
        point = ("delivered", "delivering")[(life + soak_seed) % 2]
        command = [sys.executable, str(PROGRAM), str(path), bank.url]
        done = subprocess.run(
            command, env=os.environ | {"INTURN_KILL_AT": f"{point}@{life % 4 + 1}"}, check=False, timeout=120
        )
        killed += done.returncode == -signal.SIGKILL
    assert subprocess.run([sys.executable, str(PROGRAM), str(path), bank.url], check=False, timeout=120).returncode == 0
    assert killed > 10
    assert max(Counter(headers["idempotency-key"] for headers, _ in bank.posted).values()) > 1, "some came twice"
    sent = [(account, n) for n in range(1, 21) for account in "abc"]
    done = [(output["account"], output["n"]) for output in bank.outputs().values()]  # by key, each where it came first
    assert sorted(done) == sorted(sent)
    check_or_raise(
        [
            *(
                SendCall(client="q", asked=index, answered=index, dedup_id=f"{a}/{n}", group=a, body="", number=index)
                for index, (a, n) in enumerate(sent)
            ),
            *(
                AppliedEffect(
                    client="bank", asked=index, dedup_id=f"{a}/{n}", group=a, number=sent.index((a, n)), place=index
                )
                for index, (a, n) in enumerate(done)
            ),
        ]
    )
