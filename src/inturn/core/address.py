"""Addresses of databases as they may be told: a password in one is for nobody's log and nobody's screen."""

import re
from typing import Final
from urllib.parse import unquote

from inturn.core.errors import InputError

# Up to the last @ that can belong to it, since a password with an @ of its own is a mistake that people make.
_USER: Final = re.compile(r"(?<=://)([^:@/?]*):(.*)@", re.DOTALL)
_CUT: Final = re.compile(r"(?<=://)([^:@/?[]*):(?!\d*(?:[/?,]|$)).*", re.DOTALL)
"""What is left of one that was cut off within its password."""
_PASSWORD: Final = re.compile(r"((?:password|secret)=)([^&#\s]*)", re.IGNORECASE)
_PARAMETERS: Final = re.compile(
    r"\s*(?:host|hostaddr|port|dbname|user|password|passfile|require_auth|channel_binding|connect_timeout|"
    r"client_encoding|options|application_name|fallback_application_name|keepalives\w*|tcp_user_timeout|replication|"
    r"gss\w+|ssl\w*|requirepeer|krbsrvname|service|servicefile|target_session_attrs|load_balance_hosts|oauth_\w+|"
    r"scram_\w+|min_protocol_version|max_protocol_version)\s*=",
    re.IGNORECASE,
)
"""How a list of libpq's parameters begins."""
_MISSPELT: Final = re.compile(r"\s*(?:jdbc:)?postgres(?:ql)?(?:\+\w+)?:", re.IGNORECASE)


def is_address(target: str) -> bool:
    """Whether it is a database of a PostgreSQL server that is meant, rather than a file."""
    return target.startswith(("postgresql://", "postgres://"))


def checked_target(target: str) -> str:
    """What names a database, if it is no address that would be taken for the name of a file.

    Raises:
        InputError: if it is one; it is not told, since a password may be anywhere in it.
    """
    if is_address(target):
        return target
    kind = (
        "a list of libpq's parameters (host=… dbname=…)"
        if _PARAMETERS.match(target)
        else "an address of PostgreSQL that does not begin with postgresql://"
        if _MISSPELT.match(target)
        else None
    )
    if kind:
        msg = (
            f"the database is given as {kind}; write postgresql://me@db.example.org/shop, with the password in "
            "~/.pgpass or PGPASSWORD; a file of such a name is meant by ./ before it"
        )
        raise InputError(msg)
    return target


def shown(address: str) -> str:
    """An address without its password; a path of a file stays as it is.

    >>> shown("postgresql://me:secret@db.example.org/shop")
    'postgresql://me@db.example.org/shop'
    """
    if "://" not in address:
        return address
    return _PASSWORD.sub(r"\1…", _CUT.sub(r"\1", _USER.sub(r"\1@", address)))


def without_password(text: str, address: str) -> str:
    """What somebody else has to say about an address, with nothing of its password in it.

    Args:
        text: theirs.
        address: which may have a password.
    """
    if "://" not in address:
        return text
    secrets = [match[2] for pattern in (_USER, _PASSWORD) for match in pattern.finditer(address) if match[2]]
    if any(re.search(r"[@/?#:]|%(?![0-9A-Fa-f]{2})", secret) for secret in secrets):  # so it was taken apart wrongly
        return "the password has characters that mean something in an address; write them as %40 for @ and so on"
    for secret in secrets:
        for form in (secret, unquote(secret)):
            text = text.replace(form, "…")
    return text
