"""The differential test: one history through several engines must give equal results; also for users' handlers.

from inturn.testing import disorder, same
same(ledger, disorder(messages, seed=1), engines=("replay", "worker", "batch", "stream"))
"""

from inturn.testing.compare import Comparison, compare, same
from inturn.testing.disorder import disorder
from inturn.testing.outcome import Difference, Different, EngineResult, NotDeterministic
from inturn.testing.source_check import SourceFault, source

__all__ = [
    "Comparison",
    "Difference",
    "Different",
    "EngineResult",
    "NotDeterministic",
    "SourceFault",
    "compare",
    "disorder",
    "same",
    "source",
]
