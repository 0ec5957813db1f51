"""Dates as days, and as phases of the year, the week and the day."""

import calendar
import dataclasses
import datetime
import re
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from kernax.preparation.cells import Column, check_cells, message_of_cells, quoted
from kernax.preparation.encoders import AbstractEncoder

_DAY = 86400.0
# The parts of a date in their order, and their values if absent.
_LEAST = {"year": 1, "month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}
# By English names of months, and their first letters.
_NUMBERS_OF_MONTHS = {"sept": "9"} | {
    name.lower(): str(number)
    for names in (calendar.month_abbr, calendar.month_name)
    for number, name in enumerate(names)
    if name
}
_NAME = r"(?P<name>[A-Za-z]{3,9})\.?"
_SECONDS = r"(?P<second>\d{2})(?:\.(?P<fraction>\d+))?"
_TIME = rf"(?:(?:T| +)(?P<hour>\d{{1,2}}):(?P<minute>\d{{2}})(?::{_SECONDS})?)?Z?"
# The orders in which dates are written, by the words for them in messages.
FORMATS = {
    "year-month-day": r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})",
    "year/month/day": r"(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})",
    "day.month.year": r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})",
    "day/month/year": r"(?P<day>\d{1,2})/(?P<month>\d{1,2})/(?P<year>\d{4})",
    "month/day/year": r"(?P<month>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4})",
    "day month-name year": rf"(?P<day>\d{{1,2}})[ -]{_NAME}[ -](?P<year>\d{{4}})",
    "month-name day year": rf"{_NAME}[ -]+(?P<day>\d{{1,2}}),?[ -]+(?P<year>\d{{4}})",
    "year-month": r"(?P<year>\d{4})-(?P<month>\d{1,2})",
    "year and quarter": r"(?P<year>\d{4})[- ]?Q(?P<quarter>[1-4])",
}
_PATTERNS = {words: re.compile(f"{pattern}{_TIME}") for words, pattern in FORMATS.items()}
_PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}  # days


def date_in(cell: str, form: str) -> datetime.datetime | None:
    """The date in a cell, written in the order of `FORMATS[form]`; None if it is not such a
    date.
    """
    match = _PATTERNS[form].fullmatch(cell.strip())
    if match is None:
        return None
    parts = {name: value for name, value in match.groupdict().items() if value is not None}
    if "name" in parts:
        parts["month"] = _NUMBERS_OF_MONTHS.get(parts.pop("name").lower(), "0")
    if "quarter" in parts:
        parts["month"] = str(3 * int(parts.pop("quarter")) - 2)
    microseconds = int(parts.pop("fraction", "0").ljust(6, "0")[:6])
    written = (int(parts.get(name, least)) for name, least in _LEAST.items())
    year, month, day, hour, minute, second = written
    try:
        return datetime.datetime(year, month, day, hour, minute, second, microseconds)
    except ValueError:  # the 30th of February
        return None


def forms_of(cells: tuple[str, ...]) -> list[str]:
    """The orders in which all of these cells are dates."""
    return [form for form in FORMATS if cells and all(date_in(cell, form) for cell in cells)]


@dataclasses.dataclass(frozen=True)
class Date(AbstractEncoder):
    """Encodes dates as days since the first date, and as sine and cosine of the year, the week and
    the day.

    A cycle is used if the training rows span two of its periods, and their usual step is at most a
    third of a period.
    """

    name: str
    form: str
    first: str
    cycles: tuple[str, ...]
    kind: ClassVar[str] = "date"

    def __post_init__(self):
        datetime.datetime.fromisoformat(self.first)
        unknown = [word for word in (self.form,) if word not in FORMATS]
        unknown += [cycle for cycle in self.cycles if cycle not in _PERIODS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is neither an order of dates nor a cycle")

    @classmethod
    def suits(cls, column):
        return len(forms_of(column.present)) == 1

    @classmethod
    def learned(cls, column, rows):
        (form,) = forms_of(column.present)
        dates = _dates(column.rows(rows), form)
        days = np.unique([(date - dates[0]).total_seconds() / _DAY for date in dates])
        cycles = tuple(cycle for cycle in _PERIODS if _recurs(cycle, days))
        return cls(column.name, form, min(dates).isoformat(), cycles)

    @property
    def columns(self):
        waves = (f"{self.name} {cycle} {wave}" for cycle in self.cycles for wave in ("sin", "cos"))
        return (f"{self.name} days", *waves)

    @property
    def measured(self):
        return (True, *(False,) * (2 * len(self.cycles)))

    def encoded(self, column):
        dates = _dates(column, self.form)
        first = datetime.datetime.fromisoformat(self.first)
        columns = [[(date - first).total_seconds() / _DAY for date in dates]]
        for cycle in self.cycles:
            angles = 2 * np.pi * np.array([_PHASES[cycle](date) for date in dates])
            columns += [np.sin(angles), np.cos(angles)]
        return np.stack([np.asarray(values, float) for values in columns], 1)

    def announcement(self, column):
        return f"dates of {self.name!r}, parsed as {self.form}, became {self._in_words}"

    @property
    def remark(self):
        return f"dates, written as {self.form}, become {self._in_words}"

    @property
    def _in_words(self) -> str:
        days = f"days since {self.first.removesuffix('T00:00:00')}"
        waves = [f"of the {cycle}" for cycle in self.cycles]
        return f"{days}, and sine and cosine {' and '.join(waves)}" if waves else days


def _recurs(cycle: str, days: Float[np.ndarray, " n"]) -> bool:
    """Whether different days, in order, span two periods and resolve a third of one."""
    if len(days) < 2:
        return False
    period = _PERIODS[cycle]
    return bool(days[-1] - days[0] >= 2 * period and np.median(np.diff(days)) <= period / 3)


def _dates(column: Column, form: str) -> list[datetime.datetime]:
    """The date in each cell. Raises ValueError, with its place, for a cell without a date."""
    check_cells(column, lambda cell: None if date_in(cell, form) else no_date(cell, form))
    dates = (date_in(cell, form) for cell in column.cells)
    return [date for date in dates if date is not None]


def no_date(cell: str, form: str) -> str:
    """The problem of a cell that is not a date, for `check_cells`."""
    if not cell:
        return "the cell is empty, and dates are not filled in: remove such rows, or fill them in"
    return f"{{cell}} is not a date written as {form}"


def _of_year(date: datetime.datetime) -> float:
    length = 366 if calendar.isleap(date.year) else 365
    return (date.timetuple().tm_yday - 1 + _of_day(date)) / length


def _of_week(date: datetime.datetime) -> float:
    return (date.weekday() + _of_day(date)) / 7


def _of_day(date: datetime.datetime) -> float:
    seconds = date.hour * 3600 + date.minute * 60 + date.second
    return (seconds + date.microsecond / 1e6) / _DAY


_PHASES = {"year": _of_year, "week": _of_week, "day": _of_day}


_LIKE_A_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}(?:[T ].*)?")


def unclear_dates(column: Column) -> str | None:
    """Why the dates of a column cannot be parsed; None if they can, or if it has none.

    They may be written in several orders, in an ambiguous order, or in an unknown one.
    """
    forms = forms_of(column.present)
    if len(forms) > 1:
        place = column.place(column.cells.index(column.present[0]))
        either = " or ".join(forms)
        return f"{place}: {quoted(column.present[0])} may be {either}: write year-month-day"
    if forms:
        return None
    read = {form: [date_in(cell, form) for cell in column.present] for form in FORMATS}
    counts = {form: sum(map(bool, dates)) for form, dates in read.items()}
    dated = sum(map(any, zip(*read.values())))
    like = sum(_LIKE_A_DATE.fullmatch(cell) is not None for cell in column.present)
    if 2 * max(dated, like) < len(column.present):
        return None
    # Name the cells that are written unlike the others; if no order is usual, the first cell.
    known = column.known
    usual = max(counts, key=lambda form: counts[form])
    if not counts[usual]:
        cell = quoted(known.cells[0])
        orders = ", ".join(FORMATS)
        place = known.place(0)
        return f"{place}: {cell} looks like a date, but only these orders are parsed: {orders}"

    def problem(cell: str) -> str | None:
        is_date = date_in(cell, usual) is not None
        return None if is_date else f"{no_date(cell, usual)}, as others of the column are"

    return message_of_cells(known, problem)
