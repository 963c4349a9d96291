"""The endpoint's configuration, read from a TOML file: address, access keys, queues and limits.

```toml
[server]
host = "0.0.0.0"

[[keys]]
id = "orders"
secret_env = "ORDERS_SECRET"
queues = ["orders-*"]
actions = ["Send*", "GetQueueUrl"]

[[queues]]
name = "orders-eu.fifo"
attributes = { FifoQueue = true, VisibilityTimeout = 60 }
```

The types here define every setting: an unknown name or an invalid value is refused. The action that creates queues
checks the queue attributes.
"""

import os
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.serving import config_file
from inturn.serving.config_file import ConfigTable, resolved
from inturn.serving.http import limits as bounds
from inturn.serving.listening import check_tls_pair, is_loopback
from inturn.serving.secrets import check_secret, with_secret
from inturn.serving.settings import TelemetrySettings
from inturn.sqs import limits
from inturn.sqs.console_config import ConsoleTable, Host, Port
from inturn.sqs.model import ACTIONS
from inturn.sqs.naming import ACCOUNT, REGION, Scope, parse_url
from inturn.sqs.webhook_config import WebhookConfig

Region: TypeAlias = Annotated[str, Meta(pattern=f"^{REGION}$", description='a region, such as "us-east-1"')]
Account: TypeAlias = Annotated[str, Meta(pattern=f"^{ACCOUNT}$", description="12 digits in quotes")]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]


class ServerConfig(TelemetrySettings, frozen=True, kw_only=True):
    """``[server]``: the endpoint's address, region, account and general settings, and those of its telemetry.

    Attributes:
        host: the address to listen on.
        port: the port; 0: any free port.
        region: the region of queues without another one, and of unsigned requests.
        regions: "separate" if each region has queues of its own, "joined" if all regions share them.
        check_region: whether a request signed for another region is refused.
        account: the account number of queues and keys without another one.
        base_url: the start of queue URLs, if clients use another address than ``host`` and ``port``.
        tls_cert: the file with the certificate and its chain, PEM.
        tls_key: the file with the certificate's key, PEM.
        replays: whether a second request with the same signature is refused.
        metrics: access to ``/metrics``: from this machine, for all, or off.
        sealing_key_file: the file with the keys that seal secrets in the database, the newest first; None: see sealing.
        grace_s: the time that requests in progress may take when the endpoint is stopped, in seconds.
    """

    host: Host = "127.0.0.1"
    port: Port = 9324
    region: Region = "us-east-1"
    regions: Literal["separate", "joined"] = "separate"
    check_region: bool = False
    account: Account = "000000000000"
    base_url: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    replays: Literal["accept", "refuse"] = "accept"
    metrics: Literal["local", "all", "off"] = "local"
    sealing_key_file: str | None = None
    grace_s: Seconds = limits.GRACE_S

    def check(self) -> None:
        """Check settings that depend on each other."""
        check_tls_pair(self.tls_cert, self.tls_key)
        if self.base_url is not None and not _is_base_url(self.base_url):
            raise InputError(
                f"base_url is {shown(self.base_url)!r}; expected an http or https URL with a host and optionally a "
                "path, such as https://queues.example.org"
            )
        if self.base_url is not None and parse_url(f"{self.base_url.rstrip('/')}/{self.account}/").region is not None:
            raise InputError(
                f"base_url is {shown(self.base_url)!r}, whose end would be read as a region, as in /queue/eu-west-1; "
                "expected another path, or none"
            )


class LimitsConfig(ConfigTable, frozen=True, kw_only=True):
    """``[limits]``: bounds on the resources that clients use.

    Attributes:
        pending_bytes: the maximum number of bytes of incomplete requests and of requests that wait behind another.
        connections: the maximum number of open connections.
        idle_s: the time after which a connection without a request is closed, in seconds.
        request_s: the time in which a client must send a request, in seconds.
        unread_s: the time for which a client may leave its responses unread, in seconds.
    """

    pending_bytes: Annotated[int, Meta(ge=bounds.PENDING_LEAST, le=2**40)] = bounds.PENDING_BYTES
    connections: Annotated[int, Meta(ge=1, le=1_000_000)] = bounds.CONNECTIONS
    idle_s: Seconds = bounds.IDLE_S
    request_s: Seconds = bounds.REQUEST_S
    unread_s: Seconds = bounds.UNREAD_S


class AccessKey(ConfigTable, frozen=True, kw_only=True):
    """``[[keys]]``: an access key and its permissions. A loaded key always has its secret.

    Attributes:
        id: the key's public name.
        secret: the signing secret; exactly one of this and the following two is set in the file.
        secret_env: the environment variable that holds the secret.
        secret_file: the file that holds the secret; whitespace at its ends is stripped.
        queues: patterns of the names of permitted queues.
        actions: patterns of permitted actions.
        account: the key's account; None: the server's.
        admin: whether it may read and set the attributes and permissions of every queue, whatever policies say.
    """

    id: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9_.+-]{1,128}$", description="1 to 128 letters, digits, or any of _ . + -")
    ]
    secret: str | None = None
    secret_env: str | None = None
    secret_file: str | None = None
    queues: tuple[str, ...] = ("*",)
    actions: tuple[str, ...] = ("*",)
    account: Account | None = None
    admin: bool = False

    def check(self) -> None:
        """Check the rules that types cannot express."""
        check_secret(self, "secret")
        if self.secret == "":
            raise InputError("secret is empty, so anyone could sign with it; set a secret")
        for pattern in self.actions:
            _check_action(pattern)

    def __repr__(self) -> str:
        return f"AccessKey(id={self.id!r}, queues={self.queues!r}, actions={self.actions!r}, admin={self.admin!r})"


class QueueConfig(ConfigTable, frozen=True, kw_only=True):
    """``[[queues]]``: a queue that is created at startup if it does not exist.

    Attributes:
        name: of the queue.
        attributes: the attributes by their API names; numbers, booleans, and tables for policies may be TOML values.
        tags: names and values.
        region: the queue's region; None: the server's.
        account: the queue's account; None: the server's.
    """

    name: Annotated[str, Meta(min_length=1)]
    attributes: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    region: Region | None = None
    account: Account | None = None

    def check(self) -> None:
        """Check the rules that types cannot express."""
        for name, value in self.attributes.items():
            if not isinstance(value, str | int | dict):
                raise InputError(
                    f"attribute {name} is {value!r}; expected a string, an integer, true, false or a table"
                )

    def api_attributes(self) -> dict[str, str]:
        """Return the attributes in the form of the API: strings, some of which are JSON."""
        return {
            name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for name, value in self.attributes.items()
        }


class Config(ConfigTable, frozen=True, kw_only=True):
    """The whole configuration."""

    server: ServerConfig = field(default_factory=ServerConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    keys: tuple[AccessKey, ...] = ()
    queues: tuple[QueueConfig, ...] = ()
    webhooks: tuple[WebhookConfig, ...] = ()
    console: ConsoleTable | None = None

    def check(self) -> None:
        """Check that no key, queue or webhook is listed twice, and that each queue is reachable."""
        queues = [(queue.name, self.scope_of(queue)) for queue in self.queues]
        keys, webhooks = [(key.id, None) for key in self.keys], [(webhook.name, None) for webhook in self.webhooks]
        for table, names in (("keys", keys), ("queues", queues), ("webhooks", webhooks)):
            repeated = [name for (name, _), count in Counter(names).items() if count > 1]
            if repeated:
                raise InputError(f"two [[{table}]] have the name {repeated[0]!r}; remove one of them")
        server = self.server
        if server.check_region or server.regions == "joined":
            setting = "check_region = true" if server.check_region else 'regions = "joined"'
            for name, scope in queues:
                if scope.region != server.region:
                    raise InputError(
                        f"queue {name!r} is in region {scope.region!r}, which no request can reach with {setting}; "
                        f"remove the queue's region, or remove {setting}"
                    )

    def scope_of(self, queue: QueueConfig) -> Scope:
        """Return the region and the account of a configured queue."""
        return Scope(queue.region or self.server.region, queue.account or self.server.account)


class LoadedConfig(Config, frozen=True, kw_only=True):
    """A configuration that was read from a file.

    Attributes:
        explicit_settings: the settings of ``[server]`` present in the file, even with their default values.
    """

    explicit_settings: frozenset[str] = frozenset()


_FILES: Final = ("tls_cert", "tls_key", "sealing_key_file")
"""The settings of ``[server]`` that name files."""


def load(path: str | Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Read a configuration; relative file names in it are resolved against its folder.

    Args:
        path: of the TOML file.
        environ: the environment variables, for ``secret_env``.

    Raises:
        InputError: if the file cannot be read, is not TOML, or has an unknown name or an invalid value.
    """
    file, folder = config_file.read(Path(path), Config), Path(path).parent
    config = file.value
    files = {name: resolved(folder, value) for name in _FILES if (value := getattr(config.server, name))}
    keys, webhooks = [], []
    for number, key in enumerate(config.keys):
        with file.errors_in("keys", number):
            keys.append(with_secret(key, "secret", folder, environ))
    for number, webhook in enumerate(config.webhooks):
        with file.errors_in("webhooks", number):
            webhooks.append(with_secret(webhook, "secrets", folder, environ))
            webhooks[-1].webhook()  # for its checks
    return LoadedConfig(
        keys=tuple(keys),
        server=replace(config.server, **files),
        limits=config.limits,
        queues=config.queues,
        webhooks=tuple(webhooks),
        console=config.console and config.console.resolved(folder),
        explicit_settings=frozenset(file.data.get("server", {})),
    )


def with_options(config: Config, options: Mapping[str, Any]) -> Config:
    """Return a configuration with settings of ``[server]`` replaced; options that are None are ignored.

    Raises:
        InputError: if a value is not valid.
    """
    changes = {name: value for name, value in options.items() if value is not None}
    return replace(config, server=config_file.convert(msgspec.to_builtins(config.server) | changes, ServerConfig))


def check_exposure(config: Config) -> None:
    """Check that an endpoint without access keys, or with an unsigned webhook, listens on a loopback address only.

    Raises:
        InputError: if such an endpoint listens on another address.
    """
    host = config.server.host
    if not config.keys and not is_loopback(host):
        raise InputError(
            f"host is {host!r}, which other machines can reach, but no access keys are configured: any client could "
            "read and delete everything. Add [[keys]] with an id and a secret to the configuration file (--config "
            "inturn.toml), or listen on 127.0.0.1, which needs no keys"
        )

    unsigned = next((webhook.name for webhook in config.webhooks if webhook.signature == "none"), None)
    if unsigned is not None and not is_loopback(host):
        raise InputError(
            f"host is {host!r}, which other machines can reach, but webhook {unsigned!r} has no signature: any client "
            "could send messages. Configure a signature with secrets, or listen on 127.0.0.1"
        )


def _is_base_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return (
            url.scheme in {"http", "https"} and bool(url.hostname) and not (url.query or url.fragment or url.username)
        )
    except ValueError:
        return False


def _check_action(pattern: str) -> None:
    bare = pattern.removeprefix("sqs:").lower()
    if not any(sign in bare for sign in "*?[") and bare not in {name.lower() for name in ACTIONS}:
        near = get_close_matches(pattern, ACTIONS, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"known actions: {', '.join(ACTIONS)}"
        raise InputError(f"unknown action {pattern!r}; {meant}")
