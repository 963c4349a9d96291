"""The entry point: ``inturn`` and ``python -m inturn``. It needs the standard library only."""

import sys

_NEEDED = {"typer", "rich", "click", "shellingham"}
"""The packages of the extra ``cli``, and what they need themselves."""


def main() -> None:
    """Run the command line; without its extra, say how to install it."""
    try:
        from inturn.cli import app

        app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        sys.exit(f"The command line of inturn needs {package}; install it with: pip install 'inturn[cli]'")
    except KeyboardInterrupt:  # while modules were imported; later each command ends so by itself
        sys.exit(130)


if __name__ == "__main__":
    main()
