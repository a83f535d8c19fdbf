"""Compares the values of one parameter: pairs of jobs that differ in nothing else. Pure.

The ratio of two values is the geometric mean over the pairs, and its interval Student's for the mean of logarithms
(Jain, "The Art of Computer Systems Performance Analysis", 1991, section 13.4.1: paired observations). A single pair of
latencies has the interval that the intervals of its two medians allow.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Any

from msgspec import Struct

from autosched.experiments import table
from autosched.experiments.parameters import Value, value_of
from autosched.experiments.rows import Row

T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Quantiles 0.975 of Student's distribution with 1, 2, ... 30 degrees of freedom."""
LARGE_T = 1.980
"""Student's factor for more degrees of freedom, at 120."""
HIGHER_IS_BETTER = ("speedup", "gflops")


class Compared(Struct, frozen=True, kw_only=True):
    """One value of a parameter compared with the reference."""

    figure: str
    group: dict[str, Value | None]
    """Values of the `by` parameters that the pairs share; empty: all pairs count."""
    parameter: str
    value: Value | None
    against: Value | None
    """The reference value."""
    ratio: float
    """Ratio of the figure with this value to the figure with the reference."""
    low: float | None
    high: float | None
    """Bounds of its 95 % confidence interval; None for a single pair without intervals of its own."""
    pairs: int

    @property
    def group_words(self) -> str:
        """The values that the pairs share: "rnet"; "all" for all pairs."""
        return ", ".join(map(words, self.group.values())) or "all"

    @property
    def interval_words(self) -> str:
        """The interval: "0.716 to 0.826"."""
        return "not known" if self.low is None or self.high is None else f"{self.low:.3f} to {self.high:.3f}"

    @property
    def verdict(self) -> str:
        """The conclusion: "better", "worse", or "cannot tell" if the interval contains 1 or is unknown."""
        if self.low is None or self.high is None or self.low <= 1.0 <= self.high:
            return "cannot tell"
        return "better" if (self.ratio > 1.0) == (self.figure in HIGHER_IS_BETTER) else "worse"


def words(value: Value | None) -> str:
    """A value of a parameter for people."""
    return "default" if value is None else str(value)


def compare(
    rows: Sequence[Row],
    parameter: str,
    *,
    figures: Sequence[str],
    by: Sequence[str] = (),
    against: Value | None = None,
    together: Iterable[str] = (),
    along: Iterable[str] = (),
) -> list[Compared]:
    """Compare the values of a parameter, for each group of equal values in `by`, and over all groups if there are
    several.

    against: the reference value; None: the first one of a row. together: parameters in which the jobs of a batch
    differ; figures of a batch count once for each batch. along: parameters whose values follow the compared one.
    """
    flat = table.flat(rows)
    values = list(dict.fromkeys(value_of(row.values, parameter) for row in rows))
    if not values:
        return []
    reference = against if against is not None else values[0]
    found = []
    for figure in figures:
        within = {*along, *(together if figure in table.OF_BATCHES else ())}
        cells = _cells(rows, flat, parameter, figure, within)
        groups = list(dict.fromkeys(_key(row, by) for row in rows)) if by else []
        for group in groups if len(groups) == 1 else [*groups, ()]:
            for value in values:
                if value == reference:
                    continue
                pairs = [
                    (cell[value], cell[reference])
                    for key, cell in cells.items()
                    if value in cell and reference in cell and set(group) <= set(key)
                ]
                if pairs:
                    found.append(_compared(figure, dict(group), parameter, value, reference, pairs))
    return found


class _Cell(Struct, frozen=True):
    value: float
    low: float | None
    high: float | None


def _cells(
    rows: Sequence[Row], flat: Sequence[Mapping[str, Any]], parameter: str, figure: str, within: set[str]
) -> dict[tuple[tuple[str, Value | None], ...], dict[Value | None, _Cell]]:
    """The figure by all other parameters, and by the value of the parameter."""
    names = [name for name in table.parameters(rows) if name != parameter and name not in within]
    cells: defaultdict[tuple[tuple[str, Value | None], ...], dict[Value | None, _Cell]] = defaultdict(dict)
    for row, one in zip(rows, flat, strict=True):
        if (found := one[figure]) is None or found <= 0:
            continue
        low, high = (row.low_s, row.high_s) if figure == "latency_s" else (None, None)
        cells[_key(row, names)][value_of(row.values, parameter)] = _Cell(found, low, high)
    return cells


def _compared(
    figure: str,
    group: dict[str, Value | None],
    parameter: str,
    value: Value | None,
    reference: Value | None,
    pairs: Sequence[tuple[_Cell, _Cell]],
) -> Compared:
    logs = [log(one.value / other.value) for one, other in pairs]
    low: float | None = None
    high: float | None = None
    if len(logs) > 1:
        t = T_975[len(logs) - 2] if len(logs) - 2 < len(T_975) else LARGE_T
        half = t * stdev(logs) / sqrt(len(logs))
        low, high = exp(fmean(logs) - half), exp(fmean(logs) + half)
    else:
        ((one, other),) = pairs
        if one.low and one.high and other.low and other.high:
            low, high = one.low / other.high, one.high / other.low
    return Compared(
        figure=figure, group=group, parameter=parameter, value=value, against=reference, ratio=exp(fmean(logs)),
        low=low, high=high, pairs=len(logs),
    )  # fmt: skip


def _key(row: Row, names: Iterable[str]) -> tuple[tuple[str, Value | None], ...]:
    return tuple((name, value_of(row.values, name)) for name in names)
