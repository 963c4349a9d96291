"""How a text of the user's is written where PostgreSQL keeps text, which may hold anything but NUL.

NUL becomes U+0001 U+0001, and U+0001 becomes U+0001 U+0002: different texts stay different, and in their order.
"""


def written(text: str) -> str:
    """A text as it is kept."""
    if "\0" in text or "\1" in text:
        return text.replace("\1", "\1\2").replace("\0", "\1\1")
    return text


def read(text: str) -> str:
    """A text that was kept."""
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text
