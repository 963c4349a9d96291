"""Encoding of the user's texts for PostgreSQL text columns, which hold any character but NUL.

NUL becomes U+0001 U+0001, and U+0001 becomes U+0001 U+0002. Different texts stay different and keep their order. Names
in queues are not encoded: one with a NUL is refused.
"""

from inturn.core.errors import InputError


def written(text: str) -> str:
    """Encode a text for the database."""
    if "\0" in text or "\1" in text:
        return text.replace("\1", "\1\2").replace("\0", "\1\1")
    return text


def read(text: str) -> str:
    """Decode a text from the database."""
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text


def check_text(label: str, text: str | None) -> None:
    """Check that PostgreSQL can hold a text as it is.

    Raises:
        InputError: if it has a NUL.
    """
    if text is not None and "\0" in text:
        msg = f"{label} {text!r} has a NUL at {text.index(chr(0))}, which PostgreSQL cannot store in a text; remove it"
        raise InputError(msg)
