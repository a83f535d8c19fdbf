"""The committed results of the suite: one line for each case, with what each form of it gives."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from onnx_suite.case_run import AS_IT_IS, CONSTANT

RESULTS = Path(__file__).with_name("results.txt")
ORDER = ("pass", "rounding", "refused", "-", "error", "type", "shape", "wrong", "hang", "crash")
"""Results from the best to the worst."""


class Row(Struct, frozen=True):
    """One case."""

    family: str
    runtime: str
    """Result of ONNX Runtime."""
    results: dict[str, str]
    """By form; "-" if there is no such form."""

    @property
    def best(self) -> str:
        """The better result of its forms."""
        return min(self.results.values(), key=ORDER.index)


def read(path: Path = RESULTS) -> dict[str, Row]:
    """The committed rows by case."""
    rows = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, family, runtime, as_it_is, constant = (part.strip() for part in line.split("|"))
            rows[name] = Row(family, runtime, {AS_IT_IS: as_it_is, CONSTANT: constant})
    return rows


def write(rows: Mapping[str, Row], path: Path = RESULTS) -> None:
    """Writes rows, ordered by case."""
    lines = ["# case | family | ONNX Runtime | as it is | inputs but the first constant"]
    for name, row in sorted(rows.items()):
        lines.append(" | ".join([name, row.family, row.runtime, row.results[AS_IT_IS], row.results[CONSTANT]]))
    path.write_text("\n".join(lines) + "\n")


def worse(before: Mapping[str, Row], now: Mapping[str, Row]) -> list[str]:
    """Cases with a worse result than before, in words."""
    said = []
    for name, row in now.items():
        known = before[name].results if name in before else {}
        for form, status in row.results.items():
            then = known.get(form, "crash")
            if ORDER.index(status) > ORDER.index(then) and {status, then} != {"pass", "rounding"}:
                said.append(f"{name} ({form}): {status}, was {known[form]}")
    return said


def summary(rows: Iterable[Row]) -> str:
    """Counts by family, in words."""
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    lines = []
    for family, own in sorted(families.items(), key=lambda item: -len(item[1])):
        run = [row for row in own if row.runtime == "pass"]
        fine = sum(row.best == "pass" for row in run)
        share = f"{fine / len(run):.1%}" if run else "-"
        counts = ", ".join(f"{status} {count}" for status, count in Counter(row.best for row in own).most_common())
        lines.append(f"{family}: {len(own)} cases; of {len(run)} that ONNX Runtime passes {fine} = {share}; {counts}")
    return "\n".join(lines)
