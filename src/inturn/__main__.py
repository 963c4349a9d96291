"""The entry point: ``inturn`` and ``python -m inturn``. It imports only the standard library at first."""

import sys

_NEEDED = {"typer", "rich", "click", "shellingham"}
"""The packages of the extra ``cli``, and their dependencies."""


def main() -> None:
    """Run the command line; without its extra, print how to install it."""
    try:
        from inturn.cli import app
        from inturn.serving.logs import configure

        configure("warning", json_lines=False)
        app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        sys.exit(f"The command line of inturn needs {package}; install it with: pip install 'inturn[cli]'")
    except KeyboardInterrupt:  # while modules are imported; later each command handles it
        sys.exit(130)


if __name__ == "__main__":
    main()
