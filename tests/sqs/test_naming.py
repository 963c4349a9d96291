"""Which queue of the store is meant by a name, a URL, an ARN: the pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inturn.core.errors import InputError
from inturn.sqs import naming
from inturn.sqs.naming import Home, ParsedUrl, Scope

HOME = Scope("us-east-1", "000000000000")
AWAY = Scope("eu-west-1", "000000000000")
THEIRS = Scope("us-east-1", "111122223333")
BASE = "http://127.0.0.1:9324"

SCOPES = st.builds(Scope, st.from_regex(f"\\A{naming.REGION}\\Z"), st.from_regex(f"\\A{naming.ACCOUNT}\\Z"))
NAMES = st.text(min_size=1).filter(lambda name: not name.startswith("arn:aws:sqs:"))


def stored(scope: Scope, name: str = "orders") -> str:
    stored_as = naming.stored_name(Home(HOME), scope, name)
    assert stored_as is not None
    return stored_as


def test_a_queue_of_the_home_region_is_stored_by_its_bare_name() -> None:
    assert stored(HOME) == "orders"
    assert naming.url(BASE, HOME, "orders") == f"{BASE}/000000000000/orders"
    assert naming.arn(HOME, "orders") == "arn:aws:sqs:us-east-1:000000000000:orders"


@pytest.mark.parametrize(
    ("scope", "url"),
    [(AWAY, f"{BASE}/queue/eu-west-1/000000000000/orders"), (THEIRS, f"{BASE}/111122223333/orders")],
)
def test_a_queue_of_another_region_or_account_is_stored_by_its_arn(scope: Scope, url: str) -> None:
    arn = f"arn:aws:sqs:{scope.region}:{scope.account}:orders"
    assert stored(scope) == naming.arn(HOME, arn) == arn
    assert naming.url(BASE, HOME, arn) == url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("orders", ParsedUrl(None, None, "orders")),
        (f"{BASE}/orders", ParsedUrl(None, None, "orders")),
        (f"{BASE}/0/orders", ParsedUrl(None, None, "orders")),
        (f"{BASE}/queue/orders", ParsedUrl(None, None, "orders")),
        (f"{BASE}/000000000000/orders", ParsedUrl(None, "000000000000", "orders")),
        ("/000000000000/orders", ParsedUrl(None, "000000000000", "orders")),
        (f"{BASE}/sqs/000000000000/orders", ParsedUrl(None, "000000000000", "orders")),
        (f"{BASE}/queue/000000000000/orders", ParsedUrl(None, "000000000000", "orders")),
        (f"{BASE}/queue/eu-west-1/000000000000/orders", ParsedUrl("eu-west-1", "000000000000", "orders")),
        ("/queue/eu-west-1/000000000000/orders", ParsedUrl("eu-west-1", "000000000000", "orders")),
        (f"{BASE}/sub/queue/eu-west-1/000000000000/a%2Fb", ParsedUrl("eu-west-1", "000000000000", "a/b")),
        (f"{BASE}/queue/EU/000000000000/orders", ParsedUrl("EU", "000000000000", "orders")),
        (f"{BASE}/000000000000/", ParsedUrl(None, "000000000000", "")),
        ("", ParsedUrl(None, None, "")),
        ("/" * 1000 + "orders", ParsedUrl(None, None, "orders")),
    ],
)
def test_a_queue_url_gives_region_account_and_name(url: str, expected: ParsedUrl) -> None:
    assert naming.parse_url(url) == expected


@given(SCOPES, NAMES)
def test_a_queue_url_round_trips(scope: Scope, name: str) -> None:
    url = naming.url(BASE, HOME, stored(scope, name))
    region, account, parsed_name = naming.parse_url(url)
    assert (Scope(region or HOME.region, account or "none"), parsed_name) == (scope, name)


@given(SCOPES, NAMES)
def test_a_stored_queue_name_round_trips(scope: Scope, name: str) -> None:
    assert naming.scope_of(HOME, stored(scope, name)) == (scope, name)
    assert naming.parse_arn(naming.arn(HOME, stored(scope, name))) == (scope, name)


@given(st.tuples(SCOPES, NAMES), st.tuples(SCOPES, NAMES))
def test_distinct_queues_have_distinct_stored_names(one: tuple[Scope, str], two: tuple[Scope, str]) -> None:
    assert (one == two) == (stored(*one) == stored(*two))


@pytest.mark.parametrize("scope", [HOME, AWAY])
def test_an_arn_is_not_accepted_as_a_queue_name(scope: Scope) -> None:
    assert naming.stored_name(Home(HOME), scope, stored(AWAY)) is None
    assert naming.stored_name(Home(HOME), scope, "arn:aws:sqs:") is None


@pytest.mark.parametrize("text", ["q", "arn:aws:sqs:US:000000000000:q", "arn:aws:sqs:eu-west-1:1:q", "arn:aws:"])
def test_malformed_arns_are_not_parsed(text: str) -> None:
    assert naming.parse_arn(text) is None
    assert naming.scope_of(HOME, text) == (HOME, text)


def test_queues_stored_by_arn_belong_to_a_home_with_that_region_and_account() -> None:
    queues = ["other", "arn:aws:sqs:us-east-1:000000000000:orders", stored(AWAY, "more")]
    home = Home(HOME, naming.named_by_arn(HOME, queues))
    assert home.by_arn == {"orders"}
    assert naming.stored_name(home, HOME, "orders") == queues[1]
    assert naming.stored_name(home, HOME, "other") == "other"
    assert naming.url(BASE, HOME, queues[1]) == f"{BASE}/000000000000/orders"
    with pytest.raises(InputError, match=r"two queues of the database have the same name: 'orders' and arn:aws:sqs:us"):
        naming.named_by_arn(HOME, [*queues, "orders"])
