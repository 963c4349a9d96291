"""Dry runs of decisions for a page: a process of its own runs the user's handler, for ten seconds at most."""

from typing import Final

import msgspec

from inturn.console.dry_run_process import DryRunAnswer, DryRunRequest
from inturn.console.isolated_process import WALL_S, ProcessEnded, answer_of

MOST: Final = 1000
"""Number of groups that are run at most; of more, the first."""


def dry_run(request: DryRunRequest, timeout_s: float = WALL_S) -> DryRunAnswer:
    """Run decisions dry in a process that has no secrets and no network, and return what would come.

    A handler that takes too long, or ends the process, gives an answer with an error.
    """
    try:
        out = answer_of("inturn.console.dry_run_process", msgspec.json.encode(request), "dry run", timeout_s)
    except ProcessEnded as error:
        return DryRunAnswer(error=str(error))
    return msgspec.json.decode(out, type=DryRunAnswer)
