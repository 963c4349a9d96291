"""What a policy says of a request: IAM's rules, with access keys as principals."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inturn.sqs import limits
from inturn.sqs.auth.conditions import facts_of
from inturn.sqs.auth.policy import PolicyDecision, PolicyError, PolicyRequest, parse, stored, unmatched_resources

ALLOWED, DENIED, NEITHER = PolicyDecision.ALLOWED, PolicyDecision.DENIED, PolicyDecision.NEITHER
QUEUE = "arn:aws:sqs:us-east-1:000000000000:orders.fifo"
ACCOUNT, OTHER = "111122223333", "444455556666"
NOW = 1_700_000_000  # 2023-11-14T22:13:20Z


def policy_request(
    action: str = "sqs:sendmessage",
    key_id: str = "KEY",
    account: str = ACCOUNT,
    resource: str = QUEUE,
    address: str = "10.1.2.3",
    is_secure: bool = True,
) -> PolicyRequest:
    facts = facts_of(account=account, key_id=key_id, address=address, is_secure=is_secure, now=NOW)
    actions = tuple(dict.fromkeys((action, action.removesuffix("batch"))))
    return PolicyRequest(account, key_id, actions, resource, facts)


def statement(**changed: Any) -> dict[str, Any]:
    """A statement that allows everything; an element that is None is left out."""
    usual = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    return {name: value for name, value in {**usual, **changed}.items() if value is not None}


def policy(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def decided(*statements: Mapping[str, Any], **request: Any) -> PolicyDecision:
    return parse(policy(*statements)).decide(policy_request(**request))


# --- who ---


@pytest.mark.parametrize(
    ("principal", "is_one"),
    [
        ("*", True),
        ({"AWS": "*"}, True),
        ({"AWS": ACCOUNT}, True),
        ({"AWS": OTHER}, False),
        ({"AWS": [OTHER, ACCOUNT]}, True),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, True),
        ({"AWS": f"arn:aws-cn:iam::{ACCOUNT}:root"}, True),
        ({"AWS": f"arn:aws:iam::{OTHER}:root"}, False),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:user/KEY"}, True),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:role/KEY"}, True),
        ({"AWS": f"arn:aws:sts::{ACCOUNT}:assumed-role/KEY/session"}, True),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:user/key"}, False),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:user/KEYS"}, False),
        ({"AWS": f"arn:aws:iam::{ACCOUNT}:user/path/KEY"}, False),
        ({"AWS": f"arn:aws:iam::{OTHER}:user/KEY"}, False),
        ({"Service": "sns.amazonaws.com"}, False),
        ({"Service": "*"}, False),
        ({"Service": "sns.amazonaws.com", "AWS": ACCOUNT}, True),
        ({"Federated": "cognito-identity.amazonaws.com"}, False),
        ({"CanonicalUser": "79a59df900b949e5"}, False),
    ],
)
def test_policy_principals_match_or_not(principal: Any, is_one: bool) -> None:
    assert decided(statement(Principal=principal)) is (ALLOWED if is_one else NEITHER)
    assert decided(statement(Principal=principal, Effect="Deny")) is (DENIED if is_one else NEITHER)
    assert decided(statement(Principal=None, NotPrincipal=principal)) is (NEITHER if is_one else ALLOWED)


# --- what, and with which queue ---


@pytest.mark.parametrize(
    ("action", "given", "is_one"),
    [
        ("*", "sqs:sendmessage", True),
        ("sqs:*", "sqs:sendmessage", True),
        ("SQS:SendMessage", "sqs:sendmessage", True),
        ("sqs:SENDMESSAGE", "sqs:sendmessage", True),
        ("sqs:Send*", "sqs:sendmessage", True),
        ("sqs:Sen?Message", "sqs:sendmessage", True),
        ("sqs:ReceiveMessage", "sqs:sendmessage", False),
        (["sqs:ReceiveMessage", "sqs:SendMessage"], "sqs:sendmessage", True),
        ("sqs:SendMessage", "sqs:sendmessagebatch", True),
        ("sqs:SendMessageBatch", "sqs:sendmessagebatch", True),
        ("sqs:SendMessageBatch", "sqs:sendmessage", False),
        ("sns:*", "sqs:sendmessage", False),
        ("kms:Decrypt", "sqs:sendmessage", False),
    ],
)
def test_policy_actions_match_or_not(action: Any, given: str, is_one: bool) -> None:
    assert decided(statement(Action=action), action=given) is (ALLOWED if is_one else NEITHER)
    assert decided(statement(Action=None, NotAction=action), action=given) is (NEITHER if is_one else ALLOWED)


@pytest.mark.parametrize(
    ("resource", "is_one"),
    [
        ("*", True),
        (QUEUE, True),
        ("arn:aws:sqs:*:*:orders.fifo", True),
        ("arn:aws:sqs:us-east-1:000000000000:orders*", True),
        ("arn:aws:sqs:us-east-1:000000000000:order?.fifo", True),
        ("arn:aws:sqs:us-east-1:000000000000:Orders.fifo", False),
        ("arn:aws:sqs:us-east-1:000000000000:orders", False),
        ("arn:aws:sqs:us-east-1:000000000000:orders[.]fifo", False),
        ("arn:aws:kms:us-east-1:000000000000:key/1", False),
        ([QUEUE, "arn:aws:sqs:us-east-1:000000000000:other"], True),
        ("orders.fifo", False),
        ("https://sqs.us-east-1.amazonaws.com/000000000000/orders.fifo", False),
        ("?rn*", False),
        ("**", False),
        (["orders.fifo", QUEUE], True),
    ],
)
def test_policy_resources_match_or_not(resource: Any, is_one: bool) -> None:
    assert decided(statement(Resource=resource)) is (ALLOWED if is_one else NEITHER)
    assert decided(statement(Resource=None, NotResource=resource)) is (NEITHER if is_one else ALLOWED)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (policy(statement(), statement(Resource=[QUEUE, "orders", "a\nb"])), ["orders", "a\nb"]),
        (policy(statement(Resource=None, NotResource="orders"), statement(Resource="here")), ["orders", "here"]),
        (policy(statement(Resource="${aws:username}"), statement(Resource="*")), []),
        (json.dumps({"Statement": statement(Resource="orders")}), ["orders"]),
        ('{"Statement": ["x", {"Resource": [1]}]}', []),
        ("nonsense", []),
    ],
)
def test_resources_that_match_no_queue_are_listed(text: str, found: list[str]) -> None:
    assert unmatched_resources(text) == found


def test_matching_a_long_resource_pattern_is_fast() -> None:
    resource = "arn:aws:sqs:*" + "*a" * 2_000 + "b"
    assert decided(statement(Resource=resource), resource="arn:aws:sqs:" + "a" * 200) is NEITHER


# --- when ---

TRUE, FALSE, UNKNOWN = "true", "false", "unknown"


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        ({"Bool": {"aws:SecureTransport": "true"}}, TRUE),
        ({"Bool": {"aws:SecureTransport": True}}, TRUE),
        ({"Bool": {"AWS:securetransport": "False"}}, FALSE),
        ({"Bool": {"aws:SecureTransport": ["false", "true"]}}, TRUE),
        ({"StringEquals": {"aws:SecureTransport": "true"}}, TRUE),
        ({"BoolIfExists": {"aws:SecureTransport": "false"}}, FALSE),
        ({"Null": {"aws:SecureTransport": "false"}}, TRUE),
        ({"Null": {"aws:SecureTransport": "true"}}, FALSE),
        # No service asks here, so there is no source of another resource.
        ({"ArnEquals": {"aws:SourceArn": "arn:aws:sns:us-east-1:111122223333:topic"}}, FALSE),
        ({"ArnLike": {"aws:SourceArn": "arn:aws:sns:*:*:*"}}, FALSE),
        ({"ArnLike": {"aws:SourceArn": "*"}}, FALSE),
        ({"StringEquals": {"aws:SourceArn": "x"}}, FALSE),
        ({"StringLike": {"aws:SourceArn": "*"}}, FALSE),
        ({"ArnNotEquals": {"aws:SourceArn": "arn:aws:sns:us-east-1:111122223333:topic"}}, TRUE),
        ({"StringNotEquals": {"aws:SourceAccount": ACCOUNT}}, TRUE),
        ({"StringEquals": {"aws:SourceAccount": ACCOUNT}}, FALSE),
        ({"ArnEqualsIfExists": {"aws:SourceArn": "arn:aws:sns:us-east-1:111122223333:topic"}}, TRUE),
        ({"StringNotLikeIfExists": {"aws:SourceArn": "*"}}, TRUE),
        ({"Null": {"aws:SourceArn": "true"}}, TRUE),
        ({"Null": {"aws:SourceArn": "false"}}, FALSE),
        ({"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, TRUE),
        ({"IpAddress": {"aws:SourceIp": "10.1.2.3"}}, TRUE),
        ({"IpAddress": {"aws:SourceIp": "10.1.2.3/8"}}, TRUE),
        ({"IpAddress": {"aws:SourceIp": ["192.168.0.0/16", "2001:db8::/32"]}}, FALSE),
        ({"NotIpAddress": {"aws:SourceIp": ["192.168.0.0/16", "2001:db8::/32"]}}, TRUE),
        ({"NotIpAddress": {"aws:SourceIp": ["192.168.0.0/16", "10.0.0.0/8"]}}, FALSE),
        ({"ArnEquals": {"aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:user/KEY"}}, TRUE),
        ({"ArnLike": {"aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:*"}}, TRUE),
        ({"ArnLike": {"aws:PrincipalArn": "arn:*:user/KEY"}}, None),  # refused, as it is no ARN
        ({"ArnNotLike": {"aws:PrincipalArn": f"arn:aws:iam::{OTHER}:*"}}, TRUE),
        ({"StringEquals": {"aws:PrincipalAccount": [OTHER, ACCOUNT]}}, TRUE),
        ({"StringNotEquals": {"aws:PrincipalAccount": [OTHER, ACCOUNT]}}, FALSE),
        ({"StringEquals": {"aws:username": "KEY"}}, TRUE),
        ({"StringEqualsIgnoreCase": {"aws:username": "key"}}, TRUE),
        ({"StringNotEqualsIgnoreCase": {"aws:username": "key"}}, FALSE),
        ({"StringLike": {"aws:username": "K?*"}}, TRUE),
        ({"StringNotLike": {"aws:username": "K?*"}}, FALSE),
        ({"DateGreaterThan": {"aws:CurrentTime": "2023-11-14T22:13:19Z"}}, TRUE),
        ({"DateLessThan": {"aws:CurrentTime": "2023-11-14T22:13:20Z"}}, FALSE),
        ({"DateLessThanEquals": {"aws:CurrentTime": "2023-11-14T23:13:20+01:00"}}, TRUE),
        ({"DateNotEquals": {"aws:CurrentTime": "2023-11-14"}}, TRUE),
        ({"DateEquals": {"aws:EpochTime": NOW}}, TRUE),
        ({"NumericGreaterThanEquals": {"aws:EpochTime": NOW}}, TRUE),
        # All must hold.
        ({"Bool": {"aws:SecureTransport": "true"}, "StringEquals": {"aws:username": "ANOTHER"}}, FALSE),
        ({"StringEquals": {"aws:username": "KEY", "aws:PrincipalAccount": OTHER}}, FALSE),
        # What cannot be evaluated.
        ({"StringEquals": {"aws:PrincipalOrgID": "o-1"}}, UNKNOWN),
        ({"StringNotEquals": {"aws:PrincipalOrgID": "o-1"}}, UNKNOWN),
        ({"StringEqualsIfExists": {"aws:SourceVpce": "vpce-1"}}, UNKNOWN),
        ({"Null": {"aws:TokenIssueTime": "true"}}, UNKNOWN),
        ({"ForAnyValue:StringEquals": {"aws:username": "KEY"}}, UNKNOWN),
        ({"StringMatches": {"aws:username": "KEY"}}, UNKNOWN),
        ({"StringEquals": {"aws:username": "${aws:username}"}}, UNKNOWN),
        ({"StringEquals": {"aws:username": ["${aws:username}", "KEY"]}}, TRUE),
        ({"StringNotEquals": {"aws:username": ["${aws:username}", "KEY"]}}, FALSE),
        ({"NumericEquals": {"aws:SourceIp": "1"}}, UNKNOWN),
        ({"IpAddress": {"aws:username": "10.0.0.0/8"}}, UNKNOWN),
        ({"Bool": {"aws:SecureTransport": "true", "aws:MultiFactorAuthPresent": "true"}}, UNKNOWN),
        ({"Bool": {"aws:SecureTransport": "false", "aws:MultiFactorAuthPresent": "true"}}, FALSE),
        ({}, TRUE),
    ],
)
def test_policy_conditions_are_evaluated_or_refused(condition: dict[str, Any], truth: str | None) -> None:
    if truth is None:
        with pytest.raises(PolicyError, match="Condition"):
            parse(policy(statement(Condition=condition)))
        return
    assert decided(statement(Condition=condition)) is (ALLOWED if truth is TRUE else NEITHER)
    assert decided(statement(Condition=condition, Effect="Deny")) is (NEITHER if truth is FALSE else DENIED)


def test_source_ip_conditions_match_ipv6_and_mapped_ipv4_addresses() -> None:
    inside = statement(Condition={"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "2001:db8::/32"]}})
    assert decided(inside, address="2001:db8::1") is ALLOWED
    assert decided(inside, address="::ffff:10.0.0.1") is ALLOWED
    assert decided(inside, address="2001:db9::1") is NEITHER
    assert decided(inside, address="gone") is NEITHER
    assert decided({**inside, "Effect": "Deny"}, address="gone") is DENIED


def test_a_resource_with_a_variable_grants_nothing_and_denies() -> None:
    variable = "arn:aws:sqs:us-east-1:000000000000:${aws:username}"
    assert decided(statement(Resource=variable)) is NEITHER
    assert decided(statement(Resource=variable, Effect="Deny")) is DENIED


# --- what tools send ---

SNS = statement(
    Principal={"Service": "sns.amazonaws.com"},
    Action="sqs:SendMessage",
    Resource=QUEUE,
    Condition={"ArnEquals": {"aws:SourceArn": "arn:aws:sns:us-east-1:111122223333:topic"}},
)
ENFORCE_SSL = statement(
    Effect="Deny",
    Principal={"AWS": "*"},
    Action="sqs:*",
    Resource=QUEUE,
    Condition={"Bool": {"aws:SecureTransport": "false"}},
)
KMS = statement(
    Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, Action=["kms:GenerateDataKey*", "kms:Decrypt"], Resource="*"
)


@pytest.mark.parametrize(
    "document",
    [
        {"Version": "2008-10-17", "Id": f"{QUEUE}/SQSDefaultPolicy", "Statement": [statement(Sid="Sid1")]},
        {"Version": "2012-10-17", "Statement": SNS},
        {"Version": "2012-10-17", "Statement": [SNS, ENFORCE_SSL, KMS]},
        {"Statement": []},
    ],
)
def test_policies_from_terraform_and_cdk_are_accepted(document: Any) -> None:
    parse(json.dumps(document))


def test_a_secure_transport_deny_refuses_requests_without_tls() -> None:
    assert decided(ENFORCE_SSL, statement(), is_secure=False) is DENIED
    assert decided(ENFORCE_SSL, statement()) is ALLOWED
    assert decided(ENFORCE_SSL, SNS) is NEITHER


# --- what is malformed ---


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "'nonsense' is not a JSON object."),
        ("[]", "'[]' is not a JSON object."),
        ("{}", "the policy has no Statement."),
        ('{"Statement": [], "statement": []}', "the policy has the unknown element 'statement'; expected Version,"),
        ('{"Version": "2020-01-01", "Statement": []}', "Version is '2020-01-01'; expected 2012-10-17 or"),
        ('{"Id": 7, "Statement": []}', "Id is 7; expected a string."),
        ('{"Statement": "x"}', "Statement 1: 'x' is not a JSON object."),
        (policy(statement(Sid=1)), "Statement 1: Sid is 1; expected a string."),
        (policy(statement(), statement(Effect=None)), "Statement 2: Effect is null; expected 'Allow' or 'Deny'."),
        (policy(statement(Effect="deny")), "Statement 1: Effect is 'deny'; expected 'Allow' or 'Deny'."),
        (policy(statement(effect="Deny")), "Statement 1: unknown element 'effect'; expected"),
        (policy(statement(Principal=None)), "has neither Principal nor NotPrincipal; expected one"),
        (policy(statement(NotPrincipal="*")), "has both Principal and NotPrincipal; expected one of"),
        (policy(statement(Principal="me")), "Principal is 'me'; expected '*' or an object such as"),
        (policy(statement(Principal={"Aws": "*"})), "Principal has the unknown kind 'Aws'; expected AWS,"),
        (policy(statement(Principal={"AWS": "12"})), "Principal names '12'; expected '*', an account of 12"),
        (policy(statement(Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:user/*"})), "Principal names 'arn:aws:iam::"),
        (policy(statement(Principal={"AWS": []})), "Principal.AWS is []; expected a string or a list of strings."),
        (
            policy(statement(Principal={"Service": 1})),
            "Principal.Service is 1; expected a string or a list of strings.",
        ),
        (policy(statement(Action=None)), "has neither Action nor NotAction; expected one of"),
        (policy(statement(Action="SendMessage")), "Action names 'SendMessage'; expected '*' or an action"),
        (policy(statement(Action="sqs:SendMesage")), "Action names 'sqs:SendMesage', which is not an SQS"),
        (policy(statement(Action=[])), "Action is []; expected a string or a list of strings."),
        (policy(statement(Resource=None)), "has neither Resource nor NotResource; expected one"),
        (policy(statement(Resource="")), "Resource is ''; expected a string or a list of strings."),
        (policy(statement(Resource=[1])), "Resource is [1]; expected a string or a list of strings."),
        (policy(statement(Condition=[])), "Condition is []; expected a JSON object."),
        (policy(statement(Condition={"Bool": "x"})), "Condition.Bool is 'x'; expected a JSON object."),
        (
            policy(statement(Condition={"Bool": {"a": []}})),
            "Condition.Bool has [] for 'a'; expected a string or a list.",
        ),
        (policy(statement(Condition={"Bool": {"a": [{}]}})), "Condition.Bool has [{}] for 'a'; expected a string"),
        (policy(statement(Condition={"Bool": {"a": "yes"}})), "Condition.Bool cannot have the value 'yes' for 'a'."),
        (policy(statement(Condition={"IpAddress": {"a": "10/8/8"}})), "cannot have the value '10/8/8' for 'a'."),
        (policy(statement(Condition={"DateEquals": {"a": "then"}})), "cannot have the value 'then' for 'a'."),
        (policy(statement(Sid="x" * limits.POLICY_BYTES)), "bytes; at most 8192 are allowed."),
        ("[" * 5_000, "is not a JSON object."),
        (policy(statement(Sid=json.loads("[" * 900 + "]" * 900))), "Statement 1: Sid is "),
    ],
)
def test_malformed_policies_are_refused_with_a_short_error(text: str, words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("{}", NEITHER),
        ("[]", DENIED),
        ('{"Version": "1", "Statement": []}', NEITHER),
        (policy(statement(Sid="x" * limits.POLICY_BYTES)), ALLOWED),
        (policy(statement(Action="SendMessage")), NEITHER),
        (policy(statement(), statement(Action="SendMessage")), ALLOWED),
        (policy(statement(), statement(Action="SendMessage", Effect="Deny")), DENIED),
        (policy(statement(), {"Sid": "own", "Effect": "Deny"}), DENIED),
        (policy(statement(), statement(Effect="deny")), DENIED),
        ('{"Statement": "x"}', DENIED),
    ],
)
def test_malformed_statements_of_a_stored_policy_never_grant(text: str, decision: PolicyDecision) -> None:
    assert stored(text).decide(policy_request()) is decision


# --- what always holds ---

CONDITIONS = st.sampled_from(
    [
        None,
        {"Bool": {"aws:SecureTransport": "false"}},
        {"StringEquals": {"aws:username": "KEY"}},
        {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}},
        {"ArnLike": {"aws:SourceArn": "arn:aws:sns:*:*:*"}},
        {"StringEquals": {"aws:PrincipalOrgID": "o-1"}},
        {"StringEquals": {"aws:username": "${x}"}, "Bool": {"aws:SecureTransport": "true"}},
    ]
)
UNKNOWN_CONDITIONS = st.sampled_from(
    [
        {"StringEquals": {"aws:PrincipalOrgID": "o-1"}},
        {"ForAllValues:StringLike": {"aws:username": "*"}},
        {"Null": {"aws:FederatedProvider": "true"}},
        {"StringNotEqualsIfExists": {"aws:SourceVpc": "vpc-1"}},
    ]
)
PRINCIPALS = st.sampled_from(["*", {"AWS": ACCOUNT}, {"AWS": f"arn:aws:iam::{OTHER}:user/KEY"}, {"Service": "x"}])
ACTIONS = st.sampled_from(["*", "sqs:Send*", "sqs:ReceiveMessage", ["sns:*", "sqs:DeleteMessage"]])
RESOURCES = st.sampled_from(["*", QUEUE, "arn:aws:sqs:*:*:other"])


EFFECTS = st.sampled_from(["Allow", "Deny"])


@st.composite
def statements(draw: st.DrawFn, effect: st.SearchStrategy[str] = EFFECTS) -> dict[str, Any]:
    built: dict[str, Any] = {"Effect": draw(effect)}
    for name, values in (("Principal", PRINCIPALS), ("Action", ACTIONS), ("Resource", RESOURCES)):
        built[draw(st.sampled_from([name, f"Not{name}"]))] = draw(values)
    condition = draw(CONDITIONS)
    return built if condition is None else built | {"Condition": condition}


REQUESTS = st.builds(
    policy_request,
    action=st.sampled_from(["sqs:sendmessage", "sqs:receivemessage", "sqs:sendmessagebatch"]),
    key_id=st.sampled_from(["KEY", "ANOTHER"]),
    account=st.sampled_from([ACCOUNT, OTHER]),
    address=st.sampled_from(["10.1.2.3", "::1"]),
    is_secure=st.booleans(),
)
POLICIES = st.lists(statements(), max_size=5)
RANK = {DENIED: 0, NEITHER: 1, ALLOWED: 2}


@given(POLICIES, statements(), REQUESTS)
def test_another_allow_only_grants_and_another_deny_only_denies(
    before: list[Any], one: dict[str, Any], request: PolicyRequest
) -> None:
    was, alone = parse(policy(*before)).decide(request), parse(policy(one)).decide(request)
    for every in ([*before, one], [one, *before]):
        now = parse(policy(*every)).decide(request)
        if one["Effect"] == "Allow":
            assert RANK[now] >= RANK[was], "an Allow takes nothing away"
            assert (now is DENIED) == (was is DENIED), "nor does it win over a Deny"
        else:
            assert RANK[now] <= RANK[was], "a Deny grants nothing"
            assert now is (DENIED if alone is DENIED else was), "it wins, and has no effect where it does not apply"


@given(POLICIES, statements(st.just("Allow")), UNKNOWN_CONDITIONS, REQUESTS)
def test_an_unknown_condition_in_an_allow_never_grants(
    before: list[Any], one: dict[str, Any], condition: dict[str, Any], request: PolicyRequest
) -> None:
    unknown = {**one, "Condition": {**one.get("Condition", {}), **condition}}
    assert parse(policy(*before, unknown)).decide(request) is parse(policy(*before)).decide(request)


@given(POLICIES, REQUESTS)
def test_policy_decisions_do_not_depend_on_the_statement_order(every: list[Any], request: PolicyRequest) -> None:
    assert parse(policy(*every)).decide(request) is parse(policy(*reversed(every))).decide(request)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Statement", "Effect", "Principal", "AWS", "Action", "Resource", "Condition", "Bool"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(ANYTHING | statements().map(lambda listed: {"Statement": listed}), REQUESTS)
def test_an_arbitrary_policy_document_is_refused_or_evaluated(document: Any, request: PolicyRequest) -> None:
    text = json.dumps(document)
    try:
        parsed = parse(text)
    except PolicyError:
        assert stored(text).decide(request) in {DENIED, NEITHER}
    else:
        assert parsed.decide(request) is stored(text).decide(request)
