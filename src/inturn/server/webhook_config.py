"""The configuration of the endpoint's webhooks, and their secrets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from inturn.core.errors import InputError
from inturn.ingest.config import MappingTable
from inturn.ingest.limits import REJECTED_BYTES, REJECTED_RECORDS, WEBHOOK_TOLERANCE_S
from inturn.ingest.webhooks import Webhook
from inturn.server.tables import Table, file_text


class WebhookConfig(Table, frozen=True, kw_only=True):
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

    name: Annotated[str, Meta(description="a name of letters, digits, and any of _ . -")]
    queue: Annotated[str, Meta(min_length=1, description="the name of a queue")]
    signature: Annotated[
        Literal["standard", "stripe", "github", "none"],
        Meta(description='"standard", "stripe", "github" or "none"'),
    ]
    secrets: Annotated[tuple[str, ...], Meta(description="a list of strings")] = ()
    secrets_env: Annotated[str | None, Meta(description="the name of an environment variable")] = None
    secrets_file: Annotated[str | None, Meta(description="a file name")] = None
    tolerance_s: Annotated[float, Meta(gt=0, le=86_400, description="a number of seconds above 0, at most 86400")] = (
        WEBHOOK_TOLERANCE_S
    )
    mapping: Annotated[dict[str, Any], Meta(description="a table of group, revision, id, body and format")] = field(
        default_factory=dict
    )
    max_rejected: Annotated[int, Meta(ge=1, description="an integer above 0")] = REJECTED_RECORDS
    max_rejected_bytes: Annotated[int, Meta(ge=1, description="a number of bytes above 0")] = REJECTED_BYTES

    def __post_init__(self) -> None:
        """Check the rules that types cannot express."""
        given = [name for name in ("secrets", "secrets_env", "secrets_file") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(
                f"the webhook sets {' and '.join(given)}; set only one of secrets, secrets_env and secrets_file"
            )

    def __repr__(self) -> str:
        return f"WebhookConfig(name={self.name!r}, queue={self.queue!r}, signature={self.signature!r})"

    def webhook(self) -> Webhook:
        """Return the webhook.

        Raises:
            InputError: if a value is not valid.
        """
        try:
            table = msgspec.convert({"group": None} | self.mapping, MappingTable)
        except msgspec.ValidationError as error:
            raise InputError(f"mapping: {error}") from None
        return Webhook(
            name=self.name,
            queue=self.queue,
            signature=self.signature,
            secrets=self.secrets,
            tolerance_s=self.tolerance_s,
            mapping=table.message_mapping(),
            max_rejected=self.max_rejected,
            max_rejected_bytes=self.max_rejected_bytes,
        )


def with_secrets(config: WebhookConfig, path: Path, environ: Mapping[str, str]) -> WebhookConfig:
    """Return a webhook of the file at ``path`` with its secrets, after checking it.

    Raises:
        InputError: if the secrets are missing, or a value is not valid.
    """
    about = f"{path}: [[webhooks]] {config.name!r}"
    secrets = config.secrets
    if config.secrets_env is not None:
        secrets = _lines(environ.get(config.secrets_env, ""))
        if not secrets:
            name = config.secrets_env
            raise InputError(
                f"{about}: environment variable {name} is not set or is empty; expected secrets, one per line"
            )
    elif config.secrets_file is not None:
        secrets = _lines(file_text(path.parent / config.secrets_file))
        if not secrets:
            raise InputError(f"{about}: {config.secrets_file} is empty; expected secrets, one per line")
    loaded = replace(config, secrets=secrets, secrets_env=None, secrets_file=None)
    try:
        loaded.webhook()
    except InputError as error:
        raise InputError(f"{about}: {error}") from None
    return loaded


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in map(str.strip, text.splitlines()) if line)
