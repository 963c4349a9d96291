"""The table of docs/guarantees.md: the stored form of a state's values, by declared type and value.

The tests draw values for each row, and check :mod:`inturn.core.values.states` and the page against it.
"""

from typing import Final

KEPT, REFUSED = "as it is", "refused"
FORMS: Final[tuple[tuple[str, str, str], ...]] = (
    ("none, `Any`, `dict`, `list`", "None, a bool, a finite float, a text, an int of 64 bits", KEPT),
    ("", "a dict with texts as keys, a list", KEPT),
    ("", "a `Counter`, a `defaultdict`, any other kind of dict", "a dict"),
    ("", "a tuple", "a list"),
    ("", "a `StrEnum`, an `IntEnum`, any other kind of str, int or float", "a str, an int, a float"),
    ("", "a dict with keys that are no text", REFUSED),
    ("", "bytes, a set, a time, a date, a Decimal, a UUID, an Enum, a record", REFUSED),
    ("`int`", "an int of 64 bits", KEPT),
    ("", "a float that is a whole number", "an int"),
    ("", "a bool, another float, None, a text", REFUSED),
    ("`float`", "a finite float", KEPT),
    ("", "an int that is a float", "a float"),
    ("`str`, `bool`, `date`, `timedelta`, `UUID`, `bytes`", "a value of the type", KEPT),
    ("`bytes`", "a bytearray", "bytes"),
    ("`datetime`", "a time in UTC", KEPT),
    ("", "a time in another zone", "the same time in UTC"),
    ("", "a time without a zone", REFUSED),
    ("`Decimal`", "a finite Decimal", KEPT),
    ("an `Enum` of texts or integers", "a member, or the value of one", "the member"),
    ("a dataclass, a Struct", "an instance", "its fields, each by its type"),
    ("", "an instance of a derived type", REFUSED),
    ("any", "NaN, infinity, half a surrogate pair, an int beyond 64 bits", REFUSED),
    ("any", "a list, dict, set or record that is in two places of the state", "two copies"),
    ("any", "what contains itself, or is nested too deeply", REFUSED),
)
"""The declared type (empty: as in the row above), the value, and its stored form."""


def table() -> str:
    """Return the table as Markdown, as it is on the page."""
    rows = [("type said", "value", "becomes"), ("---", "---", "---"), *FORMS]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)
