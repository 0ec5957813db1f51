"""A progress bar on standard error, drawn by the package `rich`."""

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def bar_of(title: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Draws a progress bar, and gives a function `show(done, total, words="")` that redraws it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    counts = TextColumn("{task.completed}/{task.total}  {task.fields[words]}")
    columns = (TextColumn(title), BarColumn(), counts, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as drawn:
        task = drawn.add_task("", total=total, completed=done, words="")

        def show(done: int, total: int, words: str = "") -> None:
            drawn.update(task, completed=done, total=total, words=words)

        yield show
