"""The configuration of a console: its users, the fields that viewers do not see, and the action log."""

import os
from pathlib import Path
from typing import Final

import msgspec

from inturn.console.roles import Role
from inturn.core.errors import InputError
from inturn.serving.config_file import read_toml

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_TOKEN_LETTERS: Final = 20
_DEFAULT_LOG: Final = Path("~/.local/state/inturn/console-actions.jsonl")


class Account(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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

    def secret(self, folder: Path = Path()) -> str:
        """Return the token.

        Raises:
            InputError: if it is not set, set twice, cannot be read, or is too short.
        """
        given = [each for each in (self.token, self.token_env, self.token_file) if each is not None]
        if len(given) != 1:
            raise InputError(f"people: {self.name!r} must have exactly one of token, token_env and token_file")
        if self.token is not None:
            found = self.token
        elif self.token_env is not None:
            found = os.environ.get(self.token_env, "")
        else:
            assert self.token_file is not None  # noqa: S101 - one of three is given
            try:
                found = (folder / self.token_file).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise InputError(f"people: the token of {self.name!r} cannot be read: {error}") from error
        if len(found) < _TOKEN_LETTERS:
            raise InputError(
                f"people: the token of {self.name!r} has {len(found)} characters; at least {_TOKEN_LETTERS} are "
                "required. Create one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        return found


class TrustedProxy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    addresses: list[str] = msgspec.field(default_factory=lambda: ["127.0.0.1", "::1"])


class ConsoleConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of a console.

    Attributes:
        people: the people who may log in with a token.
        proxy: the reverse proxy that is trusted to name people.
        mask: rules of fields that viewers do not see; see :class:`inturn.console.masks.MaskRules`.
        hosts: the host names that requests may use; ``*.example.org`` includes all subdomains.
        actions_log: the file of the action log.
        reports: pages of ``inturn audit``, ``lab`` and ``demo`` that the console links to, or their folders.
    """

    people: list[Account] = []
    proxy: TrustedProxy | None = None
    mask: list[str] = []
    hosts: tuple[str, ...] = LOOPBACK
    actions_log: str | None = None
    reports: tuple[str, ...] = ()

    @property
    def has_log_in(self) -> bool:
        """Return whether the console identifies its users."""
        return bool(self.people) or self.proxy is not None

    def log_file(self, folder: Path = Path()) -> Path:
        """Return the file of the action log; a relative path refers to the folder."""
        return _DEFAULT_LOG.expanduser() if self.actions_log is None else folder / self.actions_log


def read_config(path: Path) -> ConsoleConfig:
    """Read the configuration from a TOML file.

    Raises:
        InputError: if the file cannot be read, or has an unknown name or a wrong value.
    """
    return read_toml(path, ConsoleConfig)
