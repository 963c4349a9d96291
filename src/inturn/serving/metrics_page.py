"""The page for Prometheus of commands that run until they are stopped."""

from typing import TYPE_CHECKING, Any

from inturn.core.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from inturn.telemetry.figures import HasFigures


def metrics_page(
    databases: "Sequence[HasFigures]", workers: "Callable[[], Sequence[Mapping[str, Any]]]"
) -> "Callable[[], bytes]":
    """Return a function that renders the page for Prometheus; without the client installed, it raises SetupError."""
    try:
        from inturn.telemetry.collector import page
        from inturn.telemetry.families import reader
    except ModuleNotFoundError as error:
        lacking = SetupError(f"/metrics needs {error.name}; install it with: pip install 'inturn[telemetry]'")

        def refuse() -> bytes:
            raise lacking

        return refuse
    read = reader(databases, workers)
    return lambda: page(read())
