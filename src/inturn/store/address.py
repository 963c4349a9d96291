"""Addresses of databases on a server, for those who have to name one and need not connect to it."""

import re


def is_address(target: str) -> bool:
    """Whether it is a database of a PostgreSQL server that is meant, rather than a file."""
    return target.startswith(("postgresql://", "postgres://"))


def shown(url: str) -> str:
    """An address without its password."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1@", re.sub(r"(password=)[^&\s]*", r"\1…", url))
