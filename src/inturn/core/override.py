"""The decorator of a method that overrides one of a base class, which documents it; typing's, where it exists."""

import sys
from typing import TYPE_CHECKING, TypeVar

__all__ = ["override"]

if TYPE_CHECKING:
    from typing_extensions import override
elif sys.version_info >= (3, 12):
    from typing import override
else:
    F = TypeVar("F")

    def override(method: F) -> F:
        """Mark a method as an override (PEP 698)."""
        return method
