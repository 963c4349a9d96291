"""Verdicts on signatures: published vectors, and those of the senders' own packages on the same bytes."""

import base64
import datetime as dt
import random
import time
from collections.abc import Callable

import pytest
import standardwebhooks.webhooks as standardwebhooks
import stripe

from inturn.core.errors import InputError
from inturn.ingest.signatures import CHECKS, Scheme, SignatureRefused, key_of

NOW = 1772366400
A, B, OTHER = (
    "whsec_aW50dXJuLXRlc3Qtc2VjcmV0LUEtMDAw",
    "whsec_aW50dXJuLXRlc3Qtc2VjcmV0LUItMTEx",
    "whsec_c29tZS1vdGhlci1zZWNyZXQtMDAwMDAw",
)
BODY = (
    b'{"type":"order.paid","timestamp":"2026-03-01T12:00:00.120Z","data":{"order_id":"ord_7","revision":3,'
    b'"amount":4200}}'
)
SIG_A = "v1,TJKS7oOkQ5elogKca+Xg2dxs+QVuu/0O+FfF2xZzyBk="
SIG_B = "v1,bSS8zmkhNlHqVR5FQ8R7cB8dRxMcqQ1cCY9bMHfwzSw="
RETRY = "v1,EjdTJo+84Va4Dn5b/+nLyNkvCy4azKmBb5Rht874WcM="
STRIPE_NOW = 1623979270
STRIPE_BODY = (
    b'{"id":"evt_inturn_0002","object":"event","type":"customer.subscription.updated","created":1623979266,"data":'
    b'{"object":{"id":"sub_7","object":"subscription","status":"active"},"previous_attributes":{"status":"incomplete"}}'
    b',"livemode":false,"pending_webhooks":1}'
)
STRIPE_1, STRIPE_2 = "whsec_inturn_example_0001", "whsec_inturn_example_0002"
V1 = "7c284cf64869cccbf159768fa390197a29d9980b0f4429ec5f681044c276d535"
V2 = "26cdc7404d91864537898417111b9f895455b503d55290751f8ce0974af2a858"


def verdict(
    scheme: Scheme, headers: dict[str, str], body: bytes, secrets: list[str], now_s: float, tolerance_s: float = 300
) -> str:
    try:
        CHECKS[scheme]([key_of(scheme, secret) for secret in secrets], headers, body, now_s, tolerance_s)
    except SignatureRefused as error:
        return "malformed" if error.is_malformed else "refused"
    return "ok"


def standard(signature: str = SIG_A, id_: str = "msg_2xTurnA0001", at: str = str(NOW)) -> dict[str, str]:
    return {"webhook-id": id_, "webhook-timestamp": at, "webhook-signature": signature}


def svix(signature: str = SIG_A, id_: str = "msg_2xTurnA0001", at: str = str(NOW)) -> dict[str, str]:
    return {name.replace("webhook", "svix"): value for name, value in standard(signature, id_, at).items()}


def without(headers: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key != name}


@pytest.mark.parametrize(
    ("expected", "headers", "body", "secrets", "now_s"),
    [
        ("ok", standard(), BODY, [A], NOW),
        ("ok", standard(), BODY, [A.removeprefix("whsec_")], NOW),
        ("ok", standard(f"v1a,AAAA {SIG_A}"), BODY, [A], NOW),
        ("ok", standard(f"{SIG_B} {SIG_A}"), BODY, [A], NOW),
        ("ok", standard(f"{SIG_B} {SIG_A}"), BODY, [B], NOW),
        ("ok", standard(), BODY, [OTHER, A], NOW),  # the receiver rotates
        ("ok", standard(RETRY, at=str(NOW + 5)), BODY, [A], NOW),
        ("ok", standard(), BODY, [A], NOW + 300),
        ("ok", standard(), BODY, [A], NOW - 300),
        ("refused", standard(), BODY, [A], NOW + 301),
        ("refused", standard(), BODY, [A], NOW - 301),
        ("refused", standard(SIG_B), BODY, [A], NOW),
        ("refused", standard(), BODY, [OTHER], NOW),
        ("refused", standard(), BODY.replace(b":", b": ", 1), [A], NOW),
        ("refused", standard(id_="msg_2xTurnA0002"), BODY, [A], NOW),
        ("refused", standard(at=str(NOW + 1)), BODY, [A], NOW),
        ("refused", standard(SIG_A.replace("v1", "v2")), BODY, [A], NOW),
        ("refused", standard("v1,@@@"), BODY, [A], NOW),
        ("malformed", {**standard(), "webhook-id": ""}, BODY, [A], NOW),
        ("ok", svix(), BODY, [A], NOW),
        ("refused", svix(SIG_B), BODY, [A], NOW),
        ("refused", svix(), BODY, [A], NOW + 301),
        ("ok", {**svix(SIG_B, "msg_other", "1"), **standard()}, BODY, [A], NOW),
        ("refused", {**svix(), **standard(SIG_B)}, BODY, [A], NOW),
        *(("malformed", without(svix(), name), BODY, [A], NOW) for name in svix()),
        *(
            (
                "malformed",
                {**without(svix(), f"svix-{name}"), f"webhook-{name}": standard()[f"webhook-{name}"]},
                BODY,
                [A],
                NOW,
            )
            for name in ("id", "timestamp", "signature")
        ),
        *(("malformed", {**svix(), name: value}, BODY, [A], NOW) for name, value in standard().items()),
        ("malformed", standard(at="soon"), BODY, [A], NOW),
        ("malformed", standard(at="nan"), BODY, [A], NOW),
        ("malformed", standard(at="inf"), BODY, [A], NOW),
        ("malformed", standard(f"garbage {SIG_A}"), BODY, [A], NOW),  # a ValueError of the package
        ("malformed", standard(f"{SIG_B}  {SIG_A}"), BODY, [A], NOW),  # as well
        ("malformed", standard("v1,A"), BODY, [A], NOW),  # as well
        (
            "ok",
            standard("v1,4pSKXAD65BcrI/YoMaaZD4fByN3o0tjnTgO4SeAItR0=", "msg_2xTurnA0002"),
            '{"type":"order.paid","data":{"name":"Łódź €"}}'.encode(),
            [A],
            NOW,
        ),
        (
            "ok",
            standard("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330"),
            b'{"test": 2432232314}',
            ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
            1614265330,
        ),
    ],
)
def test_standard_webhooks_signatures_are_verified(
    expected: str, headers: dict[str, str], body: bytes, secrets: list[str], now_s: int
) -> None:
    assert verdict("standard", headers, body, secrets, now_s) == expected


@pytest.mark.parametrize(
    ("expected", "header", "secrets", "now_s"),
    [
        ("ok", f"t={STRIPE_NOW},v1={V1}", [STRIPE_1], STRIPE_NOW),
        ("ok", f"t={STRIPE_NOW},v1={V2}", [STRIPE_2], STRIPE_NOW),
        ("ok", f"t={STRIPE_NOW},v1={V1},v0=00", [STRIPE_1], STRIPE_NOW),
        ("ok", f"t={STRIPE_NOW},v1={V2},v1={V1}", [STRIPE_1], STRIPE_NOW),
        ("ok", f"t={STRIPE_NOW},v1={V1}", [STRIPE_2, STRIPE_1], STRIPE_NOW),
        ("ok", f"t={STRIPE_NOW},v1={V1}", [STRIPE_1], STRIPE_NOW + 300),
        ("ok", f"t={STRIPE_NOW},v1={V1}", [STRIPE_1], STRIPE_NOW - 10**6),
        ("refused", f"t={STRIPE_NOW},v1={V1}", [STRIPE_1], STRIPE_NOW + 301),
        ("refused", f"t={STRIPE_NOW},v1={V1}", [STRIPE_2], STRIPE_NOW),
        ("refused", f"t={STRIPE_NOW},v0={V1}", [STRIPE_1], STRIPE_NOW),
        ("refused", f"t={STRIPE_NOW}, v1={V1}", [STRIPE_1], STRIPE_NOW),
        ("refused", f"t={STRIPE_NOW + 1},v1={V1}", [STRIPE_1], STRIPE_NOW),
        ("malformed", f"v1={V1}", [STRIPE_1], STRIPE_NOW),
        ("malformed", "t=soon,v1=00", [STRIPE_1], STRIPE_NOW),
        ("malformed", "", [STRIPE_1], STRIPE_NOW),
        ("refused", f"t={STRIPE_NOW},v1=é", [STRIPE_1], STRIPE_NOW),
    ],
)
def test_stripe_signatures_are_verified(expected: str, header: str, secrets: list[str], now_s: int) -> None:
    assert verdict("stripe", {"stripe-signature": header}, STRIPE_BODY, secrets, now_s) == expected


@pytest.mark.parametrize(
    ("secret", "body", "digest"),
    [
        (
            "It's a Secret to Everybody",
            b"Hello, World!",
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        ),
        (
            "gh-inturn-secret",
            b'{"action":"completed","workflow_job":{"id":29679449,"run_id":9001,"run_attempt":1,"status":"completed"}}',
            "4c525d8f36a2c088f641fa29eec852aa77c3266d81be7df9af85787c8aadfa5c",
        ),
    ],
)
def test_github_signatures_are_verified(secret: str, body: bytes, digest: str) -> None:
    def of(header: str, body: bytes = body, secrets: tuple[str, ...] = (secret,)) -> str:
        return verdict("github", {"x-hub-signature-256": header}, body, list(secrets), 0)

    assert of(f"sha256={digest}") == "ok"
    assert of(f"sha256={digest}", secrets=("another", secret)) == "ok"
    assert of(f"sha256={digest}", body + b" ") == "refused"
    assert of(f"sha256={digest}", secrets=("another",)) == "refused"
    assert of(f"sha1={digest}") == of(digest) == of("sha256=") == of("") == "malformed"


def test_an_invalid_secret_is_refused_without_showing_it() -> None:
    for scheme in CHECKS:
        with pytest.raises(InputError, match="empty"):
            key_of(scheme, "")
    with pytest.raises(InputError, match="expected Base64 after 'whsec_'") as caught:
        key_of("standard", "whsec_A")
    assert "whsec_A" not in str(caught.value)


# --- the same verdicts as the senders' packages, on random mutations ---


def mutated(rng: random.Random, text: str, alphabet: str) -> str:
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        position = rng.randrange(len(text) + 1)
        cut = rng.choice((0, 0, 1, 1, 5))
        text = text[:position] + rng.choice(("", *alphabet)) + text[position + cut :]
    return text


def is_ok(check: Callable[[], object], *refusals: type[Exception]) -> bool:
    try:
        check()
    except refusals:
        return False
    return True


def test_stripe_verdicts_equal_those_of_the_stripe_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for a signature that is not ASCII, on which it raises TypeError, which is a refusal here."""
    rng, now = random.Random(7), STRIPE_NOW
    monkeypatch.setattr(time, "time", lambda: float(now))
    seen = set()
    for _ in range(3_000):
        now = STRIPE_NOW + rng.choice((0, 0, 299, 300, 301, -1_000, 86_400))
        header = mutated(rng, f"t={STRIPE_NOW},v1={V2},v1={V1},v0=00", "=,tv10 +-_")
        body = STRIPE_BODY.decode() + rng.choice(("", "", "", " "))
        secret = rng.choice((STRIPE_1, STRIPE_2, "whsec_other"))
        theirs = is_ok(
            lambda: stripe.WebhookSignature.verify_header(body, header, secret, 300),  # noqa: B023 - called at once
            stripe.SignatureVerificationError,
        )
        accepted = verdict("stripe", {"stripe-signature": header}, body.encode(), [secret], now) == "ok"
        assert accepted == theirs, (header, now, secret)
        seen.add(accepted)
    assert seen == {True, False}


def test_standard_webhooks_verdicts_equal_those_of_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one difference: on a malformed list of signatures it raises ValueError, which is a refusal here."""
    rng, now = random.Random(11), NOW

    class Frozen(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> "Frozen":
            return cls.fromtimestamp(now, tz)

    monkeypatch.setattr(standardwebhooks, "datetime", Frozen)
    seen = set()
    for _ in range(3_000):
        now = NOW + rng.choice((0, 0, 299, 300, 301, -300, -301, 86_400))
        headers = standard(
            mutated(rng, rng.choice((SIG_A, f"{SIG_B} {SIG_A}", f"v1a,AAAA {SIG_A}")), " ,v12=@+/"),
            rng.choice(("msg_2xTurnA0001", "msg_2xTurnA0001", "msg_2xTurnA0002", "")),
            mutated(rng, str(NOW), "0123.e_ -+") if rng.random() < 0.3 else str(NOW),
        )
        body = BODY + rng.choice((b"", b"", b"", b" "))
        secret = rng.choice((A, A, B, OTHER))
        theirs = is_ok(
            lambda: standardwebhooks.Webhook(secret).verify(body, headers, json_parse=False),  # noqa: B023 - as above
            standardwebhooks.WebhookVerificationError,
            ValueError,
        )
        accepted = verdict("standard", headers, body, [secret], now) == "ok"
        assert accepted == theirs, (headers, now, secret)
        seen.add(accepted)
    assert seen == {True, False}
    assert base64.b64encode(key_of("standard", A)).decode() in A


@pytest.mark.parametrize(
    ("scheme", "headers", "missing"),
    [
        ("stripe", {}, "stripe-signature"),
        ("stripe", {"stripe-signature": ""}, "stripe-signature"),
        ("github", {"x-hub-signature": "sha1=00"}, "x-hub-signature-256"),
        ("standard", {}, "webhook-id"),
        ("standard", without(standard(), "webhook-timestamp"), "webhook-timestamp"),
        ("standard", without(standard(), "webhook-signature"), "webhook-signature"),
        ("standard", without(svix(), "svix-signature"), "svix-signature"),
    ],
)
def test_a_missing_signature_header_is_named(scheme: Scheme, headers: dict[str, str], missing: str) -> None:
    with pytest.raises(SignatureRefused, match=f"the header {missing} is missing") as refused:
        CHECKS[scheme]([key_of("stripe", "s")], headers, b"{}", NOW, 300)
    assert refused.value.is_malformed
