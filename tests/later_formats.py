"""The formats of the tables that tests give to newer versions of inturn, which have one step more each."""

from typing import Final

from inturn.store.sql.steps import FIRST

ADDED: Final = FIRST + 1
"""The format of a step that only adds, so that this version continues to work."""
BROKEN: Final = FIRST + 2
"""The format of a step that changes what exists, so that this version cannot use the tables."""
