"""Application of decisions by a console with ``--take``: a separate process per store runs the handlers.

``python -m inturn.console.decision_applier STORE DEFINITION…`` applies the decisions of one store with the matching
definition.
"""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from inturn.console.store_addresses import StoreAddress
from inturn.core.errors import InturnError, StoreMismatch
from inturn.definitions import load
from inturn.pending_decisions import apply_decisions

WAIT_S: Final = 5.0
"""The time that a running stream has to apply a decision first, in seconds."""
_POLL_S: Final = 0.2
_LOG: Final = logging.getLogger(__name__)


class DecisionApplier:
    """Applies decisions soon after they were recorded.

    Args:
        definitions: the pipelines, as given on the command line.
    """

    def __init__(self, definitions: Sequence[str]) -> None:
        self._definitions = tuple(definitions)
        self._due: dict[str, bool] = {}
        self._mutex = threading.Lock()

    def apply(self, address: str) -> None:
        """Start applying the decisions of a store, including decisions recorded in the meantime."""
        with self._mutex:
            is_running, self._due[address] = address in self._due, True
        if not is_running:
            threading.Thread(target=self._run, args=(address,), name="inturn-console-decisions", daemon=True).start()

    def _run(self, address: str) -> None:
        while True:
            with self._mutex:
                if not self._due[address]:
                    del self._due[address]
                    return
                self._due[address] = False
            command = [sys.executable, "-m", "inturn.console.decision_applier", address, *self._definitions]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - ours
            if done.returncode:
                _LOG.warning("decisions were not applied: %s", done.stderr.decode("utf-8", "replace").strip()[-2000:])


def apply_to_store(address: str, definitions: Sequence[str], wait_s: float = WAIT_S) -> None:
    """Apply the decisions of a store, in this process.

    Raises:
        StoreMismatch: if no definition matches the store.
        InturnError: if the store cannot be used.
    """
    with StoreAddress(address, address).open() as service:
        is_streamed = service.unit != "task" and service.may_apply_automatically()
    if is_streamed and _is_applied(address, wait_s):
        return
    *leading, last = definitions
    with StoreAddress(address, address).open() as service:
        for definition in leading:
            with suppress(StoreMismatch):
                apply_decisions(service, load(definition), address)
                return
        apply_decisions(service, load(last), address)


def _is_applied(address: str, wait_s: float) -> bool:
    """Return whether a running stream has applied the decisions within some time."""
    from inturn.spark.tables.manifest import SparkStore

    store, until = SparkStore(address), time.monotonic() + wait_s
    while time.monotonic() < until:
        if not store.pending_decisions(store.latest(), 1):
            return True
        time.sleep(_POLL_S)
    return False


if __name__ == "__main__":
    try:
        apply_to_store(sys.argv[1], sys.argv[2:])
    except InturnError as error:
        sys.exit(str(error))
