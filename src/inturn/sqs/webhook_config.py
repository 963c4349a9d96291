"""The configuration of the endpoint's webhooks, and their secrets."""

from typing import Annotated

from msgspec import Meta

from inturn.ingest.config import MappingTable
from inturn.ingest.limits import REJECTED_BYTES, REJECTED_RECORDS, WEBHOOK_TOLERANCE_S
from inturn.ingest.signatures import Scheme
from inturn.ingest.webhooks import Webhook
from inturn.serving.config_file import ConfigTable
from inturn.serving.secrets import check_secret


class WebhookConfig(ConfigTable, frozen=True, kw_only=True):
    """``[[webhooks]]``: a webhook that is received under ``/webhooks/<name>``. A loaded one has its ``secrets``.

    Attributes:
        name: name of the webhook.
        queue: name of the queue that its messages are sent to.
        signature: the scheme of its signatures.
        secrets: the secrets; at most one of this and the following two is set in the file.
        secrets_env: the environment variable that holds the secrets, one per line.
        secrets_file: the file that holds the secrets, one per line.
        tolerance_s: the maximum age of a signature, in seconds.
        mapping: how a request becomes a message, as in the mapping of a source.
        max_rejected: the maximum number of rejected requests to store.
        max_rejected_bytes: the maximum size of the stored rejected requests, in bytes.
    """

    name: str
    queue: Annotated[str, Meta(min_length=1)]
    signature: Scheme
    secrets: tuple[str, ...] = ()
    secrets_env: str | None = None
    secrets_file: str | None = None
    tolerance_s: Annotated[float, Meta(gt=0, le=86_400)] = WEBHOOK_TOLERANCE_S
    mapping: MappingTable = MappingTable()
    max_rejected: Annotated[int, Meta(ge=1)] = REJECTED_RECORDS
    max_rejected_bytes: Annotated[int, Meta(ge=1)] = REJECTED_BYTES

    def check(self) -> None:
        """Check that the secrets are set once."""
        check_secret(self, "secrets", needed=False)

    def __repr__(self) -> str:
        return f"WebhookConfig(name={self.name!r}, queue={self.queue!r}, signature={self.signature!r})"

    def webhook(self) -> Webhook:
        """Return the webhook.

        Raises:
            InputError: if a value is not valid.
        """
        return Webhook(
            name=self.name,
            queue=self.queue,
            signature=self.signature,
            secrets=self.secrets,
            tolerance_s=self.tolerance_s,
            mapping=self.mapping.message_mapping(group=None),
            max_rejected=self.max_rejected,
            max_rejected_bytes=self.max_rejected_bytes,
        )
