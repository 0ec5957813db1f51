"""`python -m kernax`."""

import sys
from collections.abc import Callable
from importlib import import_module


def command() -> Callable[..., None]:
    """The command line. If a dependency is missing, prints what to install and exits."""
    try:
        import_module("rich")  # which the commands import later than Typer
        from kernax.cli.app import app
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] not in ("typer", "rich", "threadpoolctl"):
            raise
        print(
            f"error: the command line needs {problem.name}: pip install 'kernax-toolkit[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    return app


def main() -> None:
    """Runs the command line."""
    command()(prog_name="kernax")


if __name__ == "__main__":
    main()
