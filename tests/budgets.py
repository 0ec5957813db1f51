"""What a test may take, in processor seconds: `pytest --budgets` fails those that take more, and
names the files that take the most.

Processor time of this process and of those that it has started and waited for: other programs on
the machine change it little. The budgets are several times what the tiers are described by, so
that a cold cache and a slow machine stay within them.
"""

import os
from collections import Counter

import pytest

QUICK = 12.0
SLOW = 120.0
# How many files the summary of a run names.
FILES = 15


def pytest_addoption(parser):
    parser.addoption(
        "--budgets",
        action="store_true",
        help="fail a test that takes more processor time than its tier may",
    )


def processor_seconds() -> float:
    """Of this process and of its children that have ended, since it began."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def budget_of(item) -> float:
    """The most processor seconds that a test of this tier may take."""
    if item.get_closest_marker("nightly"):
        return float("inf")
    return SLOW if item.get_closest_marker("slow") else QUICK


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    before = processor_seconds()
    result = yield
    taken = processor_seconds() - before
    item.user_properties.append(("processor_seconds", round(taken, 2)))
    if item.config.getoption("--budgets") and taken > budget_of(item):
        tier = "slow" if budget_of(item) == QUICK else "nightly"
        pytest.fail(
            f"{item.nodeid} took {taken:.1f} processor seconds, and may take"
            f" {budget_of(item):.0f}: make it leaner, or mark it {tier}",
            pytrace=False,
        )
    return result


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("--budgets"):
        return
    seconds: Counter = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            properties = dict(getattr(report, "user_properties", ()))
            if getattr(report, "when", None) == "call":
                file = report.nodeid.split("::")[0]
                seconds[file] += properties.get("processor_seconds", 0.0)
    terminalreporter.section(f"processor seconds: {seconds.total():.0f}")
    for file, taken in seconds.most_common(FILES):
        terminalreporter.write_line(f"{taken:7.1f}  {file}")
