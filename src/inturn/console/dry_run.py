"""Dry runs of decisions for a page: a separate process runs the user's handler for at most ten seconds."""

from typing import Final

import msgspec

from inturn.console.dry_run_process import DryRunAnswer, DryRunRequest
from inturn.console.isolated_process import WALL_S, ProcessEnded, run_isolated

MOST: Final = 1000
"""Maximum number of groups in a dry run; further groups are left out."""


def dry_run(request: DryRunRequest, timeout_s: float = WALL_S) -> DryRunAnswer:
    """Run decisions dry in a process without secrets and network, and return the results.

    A handler that takes too long, or ends the process, gives an answer with an error.
    """
    try:
        out = run_isolated("inturn.console.dry_run_process", msgspec.json.encode(request), "dry run", timeout_s)
    except ProcessEnded as error:
        return DryRunAnswer(error=str(error))
    return msgspec.json.decode(out, type=DryRunAnswer)
