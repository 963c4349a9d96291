"""The user of a request and the user's rights."""

from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
    """The rights of a person; each role includes the rights of the roles before it."""

    VIEWER = "viewer"
    """May read; fields masked by a rule are hidden."""
    OPERATOR = "operator"
    """May read everything, decide about groups, send, redrive, and pause sources."""
    ADMIN = "admin"
    """May purge queues and read the action log."""

    def allows(self, needed: "Role") -> bool:
        """Return whether the role includes the rights of another role."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class Person(NamedTuple):
    """A person who uses the console.

    Attributes:
        name: the name that is stored with decisions; may be empty.
        role: the rights.
        is_known: whether the name is from a log-in; otherwise a form may give another name.
    """

    name: str
    role: Role
    is_known: bool = True

    def may(self, needed: Role) -> bool:
        """Return whether the person has the rights of a role."""
        return self.role.allows(needed)
