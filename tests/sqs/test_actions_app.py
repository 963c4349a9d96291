"""What the endpoint does around its actions: who asks, what is counted, what becomes of errors."""

import asyncio
import re
import uuid
from pathlib import Path
from types import SimpleNamespace

import boto_halves
import pytest
from endpoint import Endpoint
from hypothesis import given
from hypothesis import strategies as st

import inturn
from inturn.core.queue.messages import QueueInfo, QueueSettings, first_number
from inturn.serving.http.http1 import Request, Response
from inturn.sqs import errors
from inturn.sqs.actions import DONE_BY
from inturn.sqs.actions.names import MessageNames, ReceiptHandle, sequence_number
from inturn.sqs.app import App, OpenAccess
from inturn.sqs.context import Permit
from inturn.sqs.metrics import RequestCounts
from inturn.sqs.model import ACTIONS
from inturn.sqs.naming import Home, RequestOrigin, Scope
from inturn.sqs.wire import ApiCall
from inturn.telemetry.measures import SECONDS

HOME = Home(Scope("us-east-1", "000000000000"))
PLACE = SimpleNamespace(home=HOME, joined=False, base_url="http://localhost/")


def ask(app: App, request: Request) -> Response:
    async def answered() -> Response:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        app.handle(request, answer.set_result)
        return await answer

    return asyncio.run(answered())


def test_every_action_of_the_api_model_has_a_handler() -> None:
    assert DONE_BY.keys() == ACTIONS.keys()


def test_a_denied_request_gets_access_denied_and_changes_nothing(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    class Closed(OpenAccess):
        def authorize(self, signer: None, request: Request, call: ApiCall) -> Permit:
            seen.append((request.method, call.action))
            raise errors.access_denied("not you")

    with inturn.open(tmp_path / "q.db") as db:
        app = App(db, PLACE, access=Closed())
        for protocol in boto_halves.PROTOCOLS:
            response = ask(app, boto_halves.request(protocol, "CreateQueue", {"QueueName": "q"}))
            assert response.status == 403
            assert b"not you" in response.body
        assert db.queues() == []
        assert seen == [("POST", "CreateQueue")] * 2


def test_the_sender_id_is_stored_with_the_message(sqs: Endpoint) -> None:
    url = sqs.queue("q")
    sqs.client.send_message(QueueUrl=url, MessageBody="nobody must say")

    class Known(OpenAccess):
        def authorize(self, signer: None, request: Request, call: ApiCall) -> Permit:
            return Permit(RequestOrigin("AKIDEXAMPLE"))

    sqs.options = {"access": Known()}
    sqs.restart()
    sqs.client.send_message(QueueUrl=url, MessageBody="a key")
    senders = [message["Attributes"]["SenderId"] for message in sqs.receive(url, MessageAttributeNames=["All"])]
    assert senders == ["000000000000", "AKIDEXAMPLE"]


def test_requests_are_counted_by_action_and_error_code(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "q.db") as db:
        app = App(db, PLACE)
        for action, params in [
            ("CreateQueue", {"QueueName": "q"}),
            ("CreateQueue", {"QueueName": "q"}),
            ("CreateQueue", {"QueueName": "a b"}),
            ("GetQueueUrl", {"QueueName": "none"}),
        ]:
            ask(app, boto_halves.request("json", action, params))
        ask(app, Request("POST", b"/", {b"x-amz-target": b"AmazonSQS.Fly"}, b"{}", ""))
        counts = {key: sum(histogram.counts) for key, histogram in app.counts.durations.items()}
        assert counts == {
            ("CreateQueue", ""): 2,
            ("CreateQueue", "InvalidParameterValue"): 1,
            ("GetQueueUrl", "AWS.SimpleQueueService.NonExistentQueue"): 1,
            ("", "InvalidAction"): 1,
        }
        assert app.counts.durations["CreateQueue", ""].sum > 0


def test_a_slow_request_is_counted_in_the_last_duration_bucket() -> None:
    counts = RequestCounts()
    for took_s in (0.0, SECONDS[0], SECONDS[-1] + 1):
        counts.add("SendMessage", "", took_s)
    assert [counts.durations["SendMessage", ""].counts[bucket] for bucket in (0, -1)] == [2, 1]


@pytest.mark.parametrize("protocol", boto_halves.PROTOCOLS)
def test_an_internal_error_gets_500_without_its_text(tmp_path: Path, protocol: str) -> None:
    class Broken(OpenAccess):
        def authorize(self, signer: None, request: Request, call: ApiCall) -> Permit:
            raise RuntimeError("secret")

    with inturn.open(tmp_path / "q.db") as db:
        response = ask(App(db, PLACE, access=Broken()), boto_halves.request(protocol, "ListQueues", {}))
    assert response.status == 500
    assert b"secret" not in response.body


def test_an_unencodable_response_gets_500_and_counts_as_internal_failure(tmp_path: Path) -> None:
    place = SimpleNamespace(home=HOME, joined=False, base_url="http://\ud800/")
    with inturn.open(tmp_path / "q.db") as db:
        db.queue("q")
        app = App(db, place)
        assert ask(app, boto_halves.request("json", "ListQueues", {})).status == 500
    assert list(app.counts.durations) == [("ListQueues", "InternalFailure")]


def test_a_closed_database_gets_503(tmp_path: Path) -> None:
    db = inturn.open(tmp_path / "q.db")
    db.close()
    response = ask(App(db, PLACE), boto_halves.request("json", "ListQueues", {}))
    assert response.status == 503


def test_each_response_has_its_own_request_id(tmp_path: Path) -> None:
    with inturn.open(tmp_path / "q.db") as db:
        app = App(db, PLACE)
        answers = [ask(app, boto_halves.request("json", "ListQueues", {})) for _ in range(3)]
    assert len({dict(answer.headers)[b"x-amzn-RequestId"] for answer in answers}) == 3


# --- names ---


NUMBERS = [
    first_number(queue) + n
    for queue in (1, 2, 3, 2**18)
    for n in (1, 2, 1023, 1024, 1025, 2**20, 2**32, 2**32 + 1, 2**43)
]
LINEAGES = [bytes(16), b"a" * 16, b"b" * 16]


def test_message_ids_are_distinct_version_4_uuids() -> None:
    ids = [MessageNames(lineage).message_id(number) for lineage in LINEAGES for number in NUMBERS]
    assert len({*ids}) == len(ids)
    assert {uuid.UUID(message_id).version for message_id in ids} == {4}
    assert {uuid.UUID(message_id).variant for message_id in ids} == {uuid.RFC_4122}


@given(st.binary(min_size=16, max_size=16), st.lists(st.integers(1, 2**63 - 1), unique=True, max_size=50))
def test_message_ids_are_distinct_for_any_lineage(lineage: bytes, numbers: list[int]) -> None:
    names = MessageNames(lineage)
    assert len({names.message_id(number) for number in numbers}) == len(numbers)


def test_a_receipt_handle_of_another_database_is_refused() -> None:
    info = QueueInfo(3, "q", QueueSettings(), 0)
    number = first_number(3) + 1
    handles = [MessageNames(lineage).handle(number, 7, 1) for lineage in LINEAGES]
    for made_by, handle in zip(LINEAGES, handles, strict=True):
        for lineage in LINEAGES:
            if lineage == made_by:
                assert MessageNames(lineage).receipt(info, handle) == ReceiptHandle(number, 7, 1)
            else:
                with pytest.raises(errors.SqsError, match="not a valid receipt handle"):
                    MessageNames(lineage).receipt(info, handle)


def test_a_receipt_handle_begins_with_a_letter() -> None:
    """The AWS CLI takes ``--receipt-handle -x`` as two options."""
    handles = [MessageNames(number.to_bytes(16)).handle(first_number(3) + 1, 7, 1) for number in range(1_000)]
    assert all(re.match("[A-Za-z]", handle) for handle in handles)


def test_sequence_number_texts_sort_as_their_numbers() -> None:
    numbers = [first_number(queue) + n for queue in (1, 2, 2**18) for n in (1, 9, 10, 2**43)]
    assert sorted(map(sequence_number, numbers)) == [sequence_number(number) for number in sorted(numbers)]
