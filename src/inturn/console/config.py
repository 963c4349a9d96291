"""The configuration of a console: its users, the fields that viewers do not see, and the action log."""

from pathlib import Path
from typing import Final

from msgspec import field
from msgspec.structs import replace

from inturn.console.roles import Role
from inturn.core.errors import InputError
from inturn.serving import config_file
from inturn.serving.config_file import ConfigTable, resolved
from inturn.serving.secrets import check_secret, with_secret
from inturn.serving.settings import TelemetrySettings

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_TOKEN_LETTERS: Final = 20
_DEFAULT_LOG: Final = Path("~/.local/state/inturn/console-actions.jsonl")


class Account(ConfigTable, frozen=True, kw_only=True):
    """``[[people]]``: a person with a token.

    Attributes:
        name: the name that is stored with decisions.
        role: ``viewer``, ``operator`` or ``admin``.
        token: the token, at least 20 characters; set exactly one of ``token``, ``token_env`` and ``token_file``.
        token_env: the environment variable that holds it.
        token_file: the file that holds it; whitespace at its ends is stripped.
    """

    name: str
    role: Role
    token: str | None = None
    token_env: str | None = None
    token_file: str | None = None

    def check(self) -> None:
        """Check that a token is set once, and is long enough."""
        check_secret(self, "token")
        if self.token is not None and len(self.token) < _TOKEN_LETTERS:
            raise InputError(
                f"token has {len(self.token)} characters; at least {_TOKEN_LETTERS} are required. "
                "Create one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )


class TrustedProxy(ConfigTable, frozen=True, kw_only=True):
    """``[proxy]``: a reverse proxy that logs people in and names them in headers.

    Attributes:
        user_header: the header with the name, such as ``X-Forwarded-User``.
        role_header: the header with the role; None: all have ``role``.
        role: the role of people whose role the proxy does not send.
        addresses: the addresses from which the proxy connects; headers from other addresses are ignored.
    """

    user_header: str
    role_header: str | None = None
    role: Role = Role.VIEWER
    addresses: list[str] = field(default_factory=lambda: ["127.0.0.1", "::1"])


class ConsoleConfig(TelemetrySettings, frozen=True, kw_only=True):
    """The configuration of a console. Its settings of telemetry are for ``inturn console``.

    Attributes:
        people: the people who may log in with a token.
        proxy: the reverse proxy that is trusted to name people.
        mask: rules of fields that viewers do not see; see :class:`inturn.console.masks.MaskRules`.
        hosts: the host names that requests may use; ``*.example.org`` includes all subdomains.
        actions_log: the file of the action log.
        reports: pages of ``inturn audit``, ``lab`` and ``demo`` that the console links to, or their folders.
    """

    people: list[Account] = field(default_factory=list)
    proxy: TrustedProxy | None = None
    mask: list[str] = field(default_factory=list)
    hosts: tuple[str, ...] = LOOPBACK
    actions_log: str | None = None
    reports: tuple[str, ...] = ()

    @property
    def has_log_in(self) -> bool:
        """Return whether the console identifies its users."""
        return bool(self.people) or self.proxy is not None

    def log_file(self) -> Path:
        """Return the file of the action log."""
        return _DEFAULT_LOG.expanduser() if self.actions_log is None else Path(self.actions_log)


def read_config(path: Path) -> ConsoleConfig:
    """Read the configuration from a TOML file; relative files in it are resolved against its folder.

    Raises:
        InputError: if the file or a token cannot be read, or there is an unknown setting or a wrong value.
    """
    file, folder = config_file.read(path, ConsoleConfig), path.parent
    config, people = file.value, []
    for number, account in enumerate(config.people):
        with file.errors_in("people", number):
            people.append(with_secret(account, "token", folder))
    return replace(
        config,
        people=people,
        actions_log=config.actions_log and resolved(folder, config.actions_log),
        reports=tuple(resolved(folder, report) for report in config.reports),
    )
