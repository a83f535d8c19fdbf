"""Gantt chart for a terminal: one row per lane or device, one run of cells per step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from autosched.formatting import duration, share
from autosched.model import StepId, UnitName
from autosched.protocol import Span
from autosched.stages import STAGES, stage_of

OTHER_BLOCK, OTHER_LETTER = stage_of("").block, stage_of("").letter
BLOCKS = {name: stage.block for name, stage in STAGES.items() if stage.block != OTHER_BLOCK}
LETTERS = {name: stage.letter for name, stage in STAGES.items() if stage.letter != OTHER_LETTER}
BAR_MIN = 20
CAUSES_SHOWN = 3
CAUSE_LEAST = 0.005
"""Minimum share of the time of a cause that is listed."""

Style = Callable[[Span, str], str]


def ansi(span: Span, text: str) -> str:
    """A colour for each job, always the same."""
    return f"\x1b[{31 + span.job % 6}m{text}\x1b[0m"


def speaks_unicode(encoding: str | None) -> bool:
    """Whether a terminal with this encoding can show the blocks."""
    try:
        "".join([*BLOCKS.values(), OTHER_BLOCK, "▏"]).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def gantt(
    spans: Sequence[Span],
    start: float,
    end: float,
    *,
    units: Sequence[UnitName] = (),
    width: int = 80,
    unicode: bool = True,
    style: Style | None = None,
) -> list[str]:
    """Lines of at most `width` characters for the time from `start` to `end`, in seconds of the spans' clock.

    A run of cells shows its job, and its stage if there is space; the number at the end of a row is the share of the
    time in which the unit was leased. `units`: the rows; without it, all units of the spans, in the order of their
    first use. `style` colours a run.
    """
    rows = list(units) or list(dict.fromkeys(unit for span in spans for unit in span.units))
    margin = max((len(unit) for unit in rows), default=0)
    cells = max(BAR_MIN, width - margin - len(" ▏▏100 %") - 1)
    edge = "▏" if unicode else "|"
    lines = []
    for unit in rows:
        mine = [span for span in spans if unit in span.units]
        bar = "".join(_bar(mine, start, end, cells, BLOCKS if unicode else LETTERS, style))
        busy = share(busy_s(mine, unit, start, end), end - start)
        lines.append(f"{unit:<{margin}} {edge}{bar}{edge} {busy:>5}")
    ends = duration(end - start)
    lines.append(f"{'':<{margin}}  0s{ends:>{cells - 2}}")
    legend = _legend(spans, start, end, unicode)
    return [*lines, f"{'':<{margin}}  {legend}"] if legend else lines


def idle_lines(idle: Mapping[UnitName, Mapping[str, float]], seconds: float, units: Sequence[UnitName]) -> list[str]:
    """For each idle unit, the share of its idle time by cause, the most important causes first."""
    margin = max((len(unit) for unit in units), default=0)
    lines = []
    for unit in units:
        causes = sorted(idle.get(unit, {}).items(), key=lambda cause: -cause[1])
        shares = [f"{share(s, seconds)} {cause}" for cause, s in causes[:CAUSES_SHOWN] if s >= CAUSE_LEAST * seconds]
        lines += [f"{unit:<{margin}}  idle: {', '.join(shares)}"] if shares else []
    return lines


def busy_s(spans: Sequence[Span], unit: UnitName, start: float, end: float) -> float:
    """Seconds between `start` and `end` in which at least one step held the unit; running steps hold it until `end`."""
    total, covered_until = 0.0, start
    for span in sorted((s for s in spans if unit in s.units), key=lambda s: s.started_at):
        begins, ends = max(span.started_at, covered_until), min(_end_of(span, end), end)
        if ends > begins:
            total, covered_until = total + ends - begins, ends
    return total


def _end_of(span: Span, now: float) -> float:
    return now if span.ended_at is None else span.ended_at


def _bar(
    spans: Sequence[Span], start: float, end: float, cells: int, fills: Mapping[str, str], style: Style | None
) -> Iterator[str]:
    """Yield the cells: a cell that is mostly idle is blank, another belongs to the step that fills most of it."""
    most: dict[int, tuple[float, StepId]] = {}
    filled = [0.0] * cells
    by_step = {span.step: span for span in spans}
    cell_s = (end - start) / cells or 1.0
    for span in spans:
        begins, ends = max(span.started_at, start), min(_end_of(span, end), end)
        for cell in range(int((begins - start) / cell_s), min(cells - 1, int((ends - start) / cell_s)) + 1):
            inside = min(ends, start + (cell + 1) * cell_s) - max(begins, start + cell * cell_s)
            filled[cell] += inside
            most[cell] = max(most.get(cell, (0.0, 0)), (inside, span.step))
    for step, run in groupby(range(cells), key=lambda cell: most[cell][1] if filled[cell] > 0.4 * cell_s else 0):
        length = len(list(run))
        if step:
            text = _run(by_step[step], length, fills)
            yield style(by_step[step], text) if style is not None else text
        else:
            yield " " * length


def _run(span: Span, length: int, fills: Mapping[str, str]) -> str:
    fill = fills.get(span.stage, OTHER_LETTER if fills is LETTERS else OTHER_BLOCK)
    words = (f"{span.job} {span.stage}", f"{span.job} {span.stage[:3]}", str(span.job))
    return next((word for word in words if len(word) < length), "").ljust(length, fill)


def _legend(spans: Sequence[Span], start: float, end: float, unicode: bool) -> str:
    fills, other = (BLOCKS, OTHER_BLOCK) if unicode else (LETTERS, OTHER_LETTER)
    seen = dict.fromkeys(s.stage for s in spans if s.started_at <= end and _end_of(s, end) >= start)
    known = [f"{fill} {stage}" for stage, fill in fills.items() if stage in seen]
    others = [stage for stage in seen if stage not in fills]
    return "  ".join([*known, *([f"{other} {', '.join(others)}"] if others else [])])
