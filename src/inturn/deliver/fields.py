"""The parts of a sent output: its body, and its fields as text."""

from typing import Any, Final

import msgspec

from inturn.core.errors import DeliveryRefused
from inturn.core.identity import group_text
from inturn.core.values.path import value_at

EFFECT_ID: Final = "effect-id"
"""The header, or attribute, that carries the effect id."""

body_of: Final = msgspec.json.encode
"""Return an output as JSON."""


def text_at(output: Any, path: str, purpose: str) -> str:
    """Return a field of an output as text.

    Raises:
        DeliveryRefused: if the output does not have the field.
    """
    value = value_at(output, path)
    if value is None:
        raise DeliveryRefused(f"output {output!r:.200} has no field {path!r}, which is the {purpose}; emit that field")
    return value if isinstance(value, str) else group_text(value)
