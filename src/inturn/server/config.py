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
import tomllib
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from inturn.core.errors import InputError
from inturn.server import limits
from inturn.server.console_config import ConsoleTable
from inturn.server.misfits import misfit, misfit_text
from inturn.server.model import ACTIONS
from inturn.server.naming import ACCOUNT, REGION, Scope, address
from inturn.server.tables import Table, file_text
from inturn.server.webhook_config import WebhookConfig, with_secrets
from inturn.serving.listening import check_tls_pair, is_loopback

_A_REGION: Final = Meta(description='a region, such as "us-east-1"')
_AN_ACCOUNT: Final = Meta(description="twelve digits in quotes")
Region: TypeAlias = Annotated[str, Meta(pattern=f"^{REGION}$")]
Account: TypeAlias = Annotated[str, Meta(pattern=f"^{ACCOUNT}$")]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400, description="a number of seconds above 0, at most 86400")]


class ServerConfig(Table, frozen=True, kw_only=True):
    """``[server]``: the endpoint's address, region, account and general settings.

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
        json_logs: whether logs are JSON lines; else they are formatted for people.
        sealing_key_file: the file with the keys that seal secrets in the database, the newest first; None: see sealing.
        grace_s: the time that requests in progress may take when the endpoint is stopped, in seconds.
    """

    host: Annotated[str, Meta(min_length=1, description='an address to listen on, such as "127.0.0.1"')] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="a port from 0 to 65535 (0: any free port)")] = 9324
    region: Annotated[Region, _A_REGION] = "us-east-1"
    regions: Annotated[Literal["separate", "joined"], Meta(description='"separate" or "joined"')] = "separate"
    check_region: Annotated[bool, Meta(description="true or false")] = False
    account: Annotated[Account, _AN_ACCOUNT] = "000000000000"
    base_url: Annotated[str | None, Meta(description='a URL, such as "https://queues.example.org"')] = None
    tls_cert: Annotated[str | None, Meta(description="a file name")] = None
    tls_key: Annotated[str | None, Meta(description="a file name")] = None
    replays: Annotated[Literal["accept", "refuse"], Meta(description='"accept" or "refuse"')] = "accept"
    metrics: Annotated[Literal["local", "all", "off"], Meta(description='"local", "all" or "off"')] = "local"
    json_logs: Annotated[bool, Meta(description="true or false")] = False
    sealing_key_file: Annotated[str | None, Meta(description="a file name")] = None
    grace_s: Seconds = limits.GRACE_S

    def __post_init__(self) -> None:
        """Check settings that depend on each other."""
        try:
            check_tls_pair(self.tls_cert, self.tls_key)
        except InputError as error:
            raise ValueError(str(error)) from None  # which msgspec reports with the table
        if self.base_url is not None and not _is_base_url(self.base_url):
            raise ValueError(
                f"base_url is {self.base_url!r}; expected an http or https URL with a host and optionally a path, "
                "such as https://queues.example.org"
            )
        if self.base_url is not None and address(f"{self.base_url.rstrip('/')}/{self.account}/").region is not None:
            raise ValueError(
                f"base_url is {self.base_url!r}, whose end would be read as a region, as in /queue/eu-west-1; "
                "expected another path, or none"
            )


class LimitsConfig(Table, frozen=True, kw_only=True):
    """``[limits]``: bounds on the resources that clients use.

    Attributes:
        pending_bytes: the maximum number of bytes of incomplete requests and of requests that wait behind another.
        connections: the maximum number of open connections.
        idle_s: the time after which a connection without a request is closed, in seconds.
        request_s: the time in which a client must send a request, in seconds.
        unread_s: the time for which a client may leave its responses unread, in seconds.
    """

    pending_bytes: Annotated[
        int, Meta(ge=limits.HTTP_PENDING_LEAST, le=2**40, description="a number of bytes from 16777216 to 2^40")
    ] = limits.HTTP_PENDING_BYTES
    connections: Annotated[int, Meta(ge=1, le=1_000_000, description="a number from 1 to 1000000")] = (
        limits.HTTP_CONNECTIONS
    )
    idle_s: Seconds = limits.HTTP_IDLE_S
    request_s: Seconds = limits.HTTP_REQUEST_S
    unread_s: Seconds = limits.HTTP_UNREAD_S


class AccessKey(Table, frozen=True, kw_only=True):
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
    secret: Annotated[str | None, Meta(description="a string in quotes")] = None
    secret_env: Annotated[str | None, Meta(description="the name of an environment variable")] = None
    secret_file: Annotated[str | None, Meta(description="a file name")] = None
    queues: Annotated[tuple[str, ...], Meta(description='a list of patterns, as in ["orders-*"]')] = ("*",)
    actions: Annotated[tuple[str, ...], Meta(description='a list of patterns, as in ["Send*"]')] = ("*",)
    account: Annotated[Account | None, _AN_ACCOUNT] = None
    admin: Annotated[bool, Meta(description="true or false")] = False

    def __post_init__(self) -> None:
        """Check the rules that types cannot express."""
        given = [name for name in ("secret", "secret_env", "secret_file") if getattr(self, name) is not None]
        if len(given) != 1:
            has = f"sets {' and '.join(given)}" if given else "has no secret"
            raise ValueError(f"the key {has}; set exactly one of secret, secret_env and secret_file")
        if self.secret == "":
            raise ValueError("secret is empty, so anyone could sign with it; set a secret")
        for pattern in self.actions:
            _check_action(pattern)

    def __repr__(self) -> str:
        return f"AccessKey(id={self.id!r}, queues={self.queues!r}, actions={self.actions!r}, admin={self.admin!r})"


class QueueConfig(Table, frozen=True, kw_only=True):
    """``[[queues]]``: a queue that is created at startup if it does not exist.

    Attributes:
        name: of the queue.
        attributes: the attributes by their API names; numbers, booleans, and tables for policies may be TOML values.
        tags: names and values.
        region: the queue's region; None: the server's.
        account: the queue's account; None: the server's.
    """

    name: Annotated[str, Meta(min_length=1, description="a name")]
    attributes: Annotated[dict[str, Any], Meta(description="a table of attributes")] = field(default_factory=dict)
    tags: Annotated[dict[str, str], Meta(description="a table of strings")] = field(default_factory=dict)
    region: Annotated[Region | None, _A_REGION] = None
    account: Annotated[Account | None, _AN_ACCOUNT] = None

    def __post_init__(self) -> None:
        """Check the rules that types cannot express."""
        for name, value in self.attributes.items():
            if not isinstance(value, str | int | dict):
                raise ValueError(  # noqa: TRY004 - msgspec turns it into a ValidationError
                    f"attribute {name} is {value!r}; expected a string, an integer, true, false or a table"
                )

    def as_told(self) -> dict[str, str]:
        """Return the attributes in the form of the API: strings, some of which are JSON."""
        return {
            name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for name, value in self.attributes.items()
        }


class Config(Table, frozen=True, kw_only=True):
    """The whole configuration."""

    server: ServerConfig = field(default_factory=ServerConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    keys: tuple[AccessKey, ...] = ()
    queues: tuple[QueueConfig, ...] = ()
    webhooks: tuple[WebhookConfig, ...] = ()
    console: ConsoleTable | None = None

    def __post_init__(self) -> None:
        """Check that no key, queue or webhook is listed twice, and that each queue is reachable."""
        queues = [(each.name, self.scope_of(each)) for each in self.queues]
        keys, webhooks = [(key.id, None) for key in self.keys], [(each.name, None) for each in self.webhooks]
        for table, names in (("keys", keys), ("queues", queues), ("webhooks", webhooks)):
            twice = [name for (name, _), count in Counter(names).items() if count > 1]
            if twice:
                raise ValueError(f"two [[{table}]] have the name {twice[0]!r}; remove one of them")
        server = self.server
        if server.check_region or server.regions == "joined":
            why = "check_region = true" if server.check_region else 'regions = "joined"'
            for name, scope in queues:
                if scope.region != server.region:
                    raise ValueError(
                        f"queue {name!r} is in region {scope.region!r}, which no request can reach with {why}; "
                        f"remove the queue's region, or remove {why}"
                    )

    def scope_of(self, queue: QueueConfig) -> Scope:
        """Return the region and the account of a configured queue."""
        return Scope(queue.region or self.server.region, queue.account or self.server.account)


class Loaded(Config, frozen=True, kw_only=True):
    """A configuration that was read from a file.

    Attributes:
        said: the settings of ``[server]`` present in the file, even with their default values.
    """

    said: frozenset[str] = frozenset()


_FILES: Final = ("tls_cert", "tls_key", "sealing_key_file")
"""The settings of ``[server]`` that name files."""
_TABLES: Final[dict[str, type[Table]]] = {
    "": Config,
    "server": ServerConfig,
    "limits": LimitsConfig,
    "keys": AccessKey,
    "queues": QueueConfig,
    "webhooks": WebhookConfig,
    "console": ConsoleTable,
}


def load(path: str | Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Read a configuration; relative file names in it are resolved against its folder.

    Args:
        path: of the TOML file.
        environ: the environment variables, for ``secret_env``.

    Raises:
        InputError: if the file cannot be read, is not TOML, or has an unknown name or an invalid value.
    """
    path = Path(path)
    text = file_text(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    try:
        config = msgspec.convert(data, Config)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {misfit_text(str(error), _TABLES, data, text)}") from None
    server = config.server
    return Loaded(
        keys=tuple(_with_secret(key, path, environ) for key in config.keys),
        server=replace(server, **{name: _beside(path, getattr(server, name)) for name in _FILES}),
        limits=config.limits,
        queues=config.queues,
        webhooks=tuple(with_secrets(each, path, environ) for each in config.webhooks),
        console=None if config.console is None else config.console.beside(path.parent),
        said=frozenset(data.get("server", {})),
    )


def with_options(config: Config, options: Mapping[str, Any]) -> Config:
    """Return a configuration with settings of ``[server]`` replaced; options that are None are ignored.

    Raises:
        InputError: if a value is not valid.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return replace(config, server=msgspec.convert(msgspec.to_builtins(config.server) | given, ServerConfig))
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        raise InputError(misfit(ServerConfig, name, given.get(name)) if name else what) from None
    except ValueError as error:  # contradictory settings, such as a region and queues of another one
        raise InputError(str(error)) from None


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

    unsigned = next((each.name for each in config.webhooks if each.signature == "none"), None)
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
        raise ValueError(f"unknown action {pattern!r}; {meant}")


def _with_secret(key: AccessKey, path: Path, environ: Mapping[str, str]) -> AccessKey:
    secret = key.secret
    if key.secret_env is not None:
        secret = environ.get(key.secret_env)
        if not secret:
            raise InputError(
                f"{path}: environment variable {key.secret_env} is not set or is empty; "
                f"expected the secret of the key {key.id!r}"
            )
    elif key.secret_file is not None:
        place = Path(path.parent, key.secret_file)
        secret = file_text(place).strip()
        if not secret:
            raise InputError(f"{place}: the file is empty; expected the secret of the key {key.id!r}")
    return replace(key, secret=secret, secret_env=None, secret_file=None)


def _beside(path: Path, name: str | None) -> str | None:
    return None if name is None else str(Path(path.parent, name))
