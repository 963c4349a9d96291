"""Database addresses without their passwords, for logs and screens."""

import re
from typing import Final
from urllib.parse import unquote

from inturn.core.arguments import check_type
from inturn.core.errors import InputError

# Match up to the last @ that can belong to the password: an unescaped @ within a password is a common mistake.
_USER: Final = re.compile(r"(?<=://)([^:@/?]*):(.*)@", re.DOTALL)
_CUT: Final = re.compile(r"(?<=://)([^:@/?[]*):(?!\d*(?:[/?,]|$)).*", re.DOTALL)
"""The start of an address that was cut off in the middle of its password."""
_PASSWORD: Final = re.compile(r"((?:password|secret)=)([^&#\s]*)", re.IGNORECASE)
_PARAMETERS: Final = re.compile(
    r"\s*(?:host|hostaddr|port|dbname|user|password|passfile|require_auth|channel_binding|connect_timeout|"
    r"client_encoding|options|application_name|fallback_application_name|keepalives\w*|tcp_user_timeout|replication|"
    r"gss\w+|ssl\w*|requirepeer|krbsrvname|service|servicefile|target_session_attrs|load_balance_hosts|oauth_\w+|"
    r"scram_\w+|min_protocol_version|max_protocol_version)\s*=",
    re.IGNORECASE,
)
"""The beginning of a list of libpq parameters."""
_MISSPELT: Final = re.compile(r"\s*(?:jdbc:)?postgres(?:ql)?(?:\+\w+)?:", re.IGNORECASE)


def is_address(target: str) -> bool:
    """Return whether a target is a PostgreSQL address rather than a file."""
    return target.startswith(("postgresql://", "postgres://"))


def checked_target(target: str) -> str:
    """Return a database target, after checking that it is not a malformed address that would be read as a file name.

    Raises:
        InputError: if it is not a text, or is such an address; the error does not quote an address, since a password
            may be anywhere in it.
    """
    check_type("target", target, str, "an SQLite file, such as 'shop.db', or a postgresql:// address")
    if is_address(target):
        return target
    if _PARAMETERS.match(target):
        kind = "a list of libpq parameters (host=… dbname=…)"
    elif _MISSPELT.match(target):
        kind = "a PostgreSQL address that does not begin with postgresql://"
    else:
        return target
    raise InputError(
        f"the database is given as {kind}; write postgresql://me@db.example.org/shop, with the password in "
        "~/.pgpass or PGPASSWORD; for a file of this name, put ./ before it"
    )


def shown(address: str) -> str:
    """Return an address without its password; a file path is returned unchanged.

    >>> shown("postgresql://me:secret@db.example.org/shop")
    'postgresql://me@db.example.org/shop'
    """
    if "://" not in address:
        return address
    return _PASSWORD.sub(r"\1…", _CUT.sub(r"\1", _USER.sub(r"\1@", address)))


def without_password(text: str, address: str) -> str:
    """Return a foreign text about an address, such as an error, without any part of the address's password.

    Args:
        text: text that may quote the address.
        address: address that may have a password.
    """
    if "://" not in address:
        return text
    secrets = [match[2] for pattern in (_USER, _PASSWORD) for match in pattern.finditer(address) if match[2]]
    if any(re.search(r"[@/?#:]|%(?![0-9A-Fa-f]{2})", secret) for secret in secrets):  # split at the wrong place
        return "the password contains characters with a meaning in addresses; percent-encode them, such as %40 for @"
    for secret in secrets:
        for form in (secret, unquote(secret)):
            text = text.replace(form, "…")
    return text
