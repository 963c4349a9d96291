"""Delivery to a queue of SQS, or of any endpoint that speaks its protocol."""

from typing import Any

from inturn.core.errors import DeliveryError, DeliveryRefused, InputError, SetupError
from inturn.deliver.fields import EFFECT_ID, body_of, text_at


class sqs:  # noqa: N801 - it is called as a function is
    """Deliver outputs as JSON messages; the attribute ``effect-id`` has the effect id.

    On a FIFO queue the effect id is the deduplication id, which the service remembers for five minutes only. A queue
    that does not exist, a message that is too large and every other error of the request refuse the output for good;
    throttling and expired credentials do not.

    Args:
        queue_url: the address of the queue.
        group: path of the output's field that is the message group; a FIFO queue needs it.
        options: further options of ``boto3.client``, such as ``region_name`` or ``endpoint_url``.

    Raises:
        InputError: if the group of a FIFO queue is missing.
        SetupError: if boto3 is not installed.
    """

    def __init__(self, queue_url: str, *, group: str | None = None, **options: Any) -> None:
        try:
            import boto3
        except ImportError as error:
            raise SetupError(f"SQS needs boto3: pip install 'inturn[sqs]' ({error})") from error
        self._is_fifo = queue_url.endswith(".fifo")
        if self._is_fifo and group is None:
            raise InputError(
                f"{queue_url!r} is a FIFO queue; set group= to the path of the output field that is the group"
            )
        self._url, self._group = queue_url, group
        self._client = boto3.client("sqs", **options)

    def __call__(self, output: Any, effect_id: str) -> None:
        """Deliver one output."""
        from botocore.exceptions import BotoCoreError, ClientError

        more = {} if self._group is None else {"MessageGroupId": text_at(output, self._group, "group")}
        if self._is_fifo:
            more["MessageDeduplicationId"] = effect_id
        try:
            self._client.send_message(
                QueueUrl=self._url,
                MessageBody=body_of(output).decode(),
                MessageAttributes={EFFECT_ID: {"DataType": "String", "StringValue": effect_id}},
                **more,
            )
        except ClientError as error:
            raise (DeliveryError if _is_transient(error.response) else DeliveryRefused)(str(error)) from error
        except BotoCoreError as error:
            raise DeliveryError(str(error)) from error


def _is_transient(response: Any) -> bool:
    """Return whether a retry may succeed."""
    code, status = response["Error"].get("Code", ""), response["ResponseMetadata"].get("HTTPStatusCode", 500)
    transient = ("Throttl", "TooManyRequests", "ExpiredToken", "RequestExpired", "OverLimit")
    return status >= 500 or status == 429 or any(name in code for name in transient)
