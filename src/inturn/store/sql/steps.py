"""The format of the tables: the schema, and the steps that bring tables of an earlier format up to date.

The schema of a store is its step ``FIRST``. A later change is a file beside it, such as ``migrations/0041.sql``, whose
number is the format that it makes; a new database runs the schema and all steps. A step only adds tables, columns that
are nullable or have a default, and indexes, so that servers of the previous version continue to work. A step that
removes something or changes a meaning has the first line

    -- readable_from: 41

with the first format that a version must know to use the tables. The part that it removes was last used by the version
before that one. SQLite does without the line: no version writes to a file of a newer format.
"""

import re
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from inturn.core.errors import StoreMismatch

FIRST: Final = 40
"""The format of the schemas; lower formats were those of development versions, and were never released."""


class Step(NamedTuple):
    """A change of the tables.

    Attributes:
        number: the format that it makes.
        text: its SQL.
    """

    number: int
    text: str

    @property
    def readable_from(self) -> int | None:
        """The first format that a version must know to use the tables afterwards; None: as before."""
        breaking = re.match(r"-- readable_from: (\d+)\n", self.text)
        return None if breaking is None else int(breaking[1])


def read_steps(store: Traversable) -> tuple[Step, ...]:
    """Return the steps of a store in order, from the folder that has its schema."""
    migrations = store / "migrations"
    later = [step for step in migrations.iterdir() if step.name.endswith(".sql")] if migrations.is_dir() else []
    schema = Step(FIRST, (store / "schema.sql").read_text())
    return schema, *sorted(Step(int(step.name[:4]), step.read_text()) for step in later)


def refuse_unreleased(name: str, version: int) -> None:
    """Check that the tables have a format that was released, or that there are none.

    Raises:
        StoreMismatch: if not.
    """
    if 0 < version < FIRST:
        raise StoreMismatch(
            f"{name} has format {version}, of a development version before the first release; formats before {FIRST} "
            "cannot be migrated; create a new database"
        )
