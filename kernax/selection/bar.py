"""A bar on standard error, which needs `rich`."""

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def bar_of(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Draws a bar; what it gives is called with how many of `total` are done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)
