"""Where tests keep what they have installed or fetched: outside the checkout, so that each fresh clone finds it."""

import os
from pathlib import Path
from typing import Final

CACHE: Final = Path(os.environ.get("INTURN_CACHE") or Path.home() / ".cache" / "inturn-tests")
"""Its folders are named by what is in them and by its version; ``INTURN_CACHE`` puts them elsewhere."""
