"""Who asks, and what that person may do."""

from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """The rights of a person; each has those of the ones before."""

    VIEWER = "viewer"
    """Reads; the fields that a rule masks are hidden."""
    OPERATOR = "operator"
    """Reads everything, decides about groups, sends, redrives, pauses sources."""
    ADMIN = "admin"
    """Purges queues, and reads the log of actions."""

    def allows(self, needed: "Role") -> bool:
        """Return whether the rights include those of another role."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class Person(NamedTuple):
    """A person who uses the console.

    Attributes:
        name: the name that is kept with decisions; may be empty.
        role: the rights.
        is_known: whether a log-in says so; otherwise a form may name somebody else.
    """

    name: str
    role: Role
    is_known: bool = True

    def may(self, needed: Role) -> bool:
        """Return whether the person has the rights of a role."""
        return self.role.allows(needed)
