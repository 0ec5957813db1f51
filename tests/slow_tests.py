"""Which tests are slow: those marked by hand, and those whose functions are listed in slow.txt."""

from collections import defaultdict
from pathlib import Path

LIST = Path(__file__).parent / "slow.txt"
_MOST = 1.5  # seconds that a test may take and not be listed


def function_of(nodeid: str) -> str:
    """The file and the function of a test, without its parameters."""
    return nodeid.split("[")[0]


def listed() -> frozenset[str]:
    """The functions of which a test took longer."""
    return frozenset(LIST.read_text().split()) if LIST.exists() else frozenset()


class Durations:
    """Adds to the list what took long of the tests that ran; to begin anew, delete it."""

    def __init__(self):
        self.seconds = defaultdict(float)

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self):
        long = {function_of(name) for name, seconds in self.seconds.items() if seconds > _MOST}
        LIST.write_text("\n".join(sorted(listed() | long)) + "\n")
