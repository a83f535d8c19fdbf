"""The section of RESULTS.md on the verification: right builds that were rejected, broken ones that were accepted."""

from collections.abc import Mapping
from typing import Any


def section(told: Mapping[str, Any]) -> list[str]:
    """The lines of the section."""
    rows = {name: row for name, row in told.items() if isinstance(row, dict) and "verdicts" in row}
    broken = [(name, one) for name, row in rows.items() for one in row["broken"]]
    accepted = [f"{name}, {one['what']}" for name, one in broken if one["accepted"]]
    rejected = sum(row["rejected"] for row in rows.values())
    hidden = sum(len(row["masked"]) for row in rows.values())
    largest = max((row["largest"] for row in rows.values()), default=0.0)
    least = min((one["error_of_tolerance"] for _, one in broken if not one["accepted"]), default=0.0)
    return [
        "## Verdicts",
        "",
        "`python benchmarks/verdicts.py`: trained networks with a schedule of the template search for every task,",
        "judged with several seeds of inputs; then with one kernel broken on purpose, which by itself computes",
        "something else.",
        "",
        f"{len(rows)} networks, {sum(row['verdicts'] for row in rows.values())} verdicts on right builds: {rejected}"
        f" rejected. The largest error of a right build was {largest:.2g} of its tolerance.",
        "",
        f"{len(broken)} broken builds: {len(accepted)} accepted{''.join(f' ({one})' for one in accepted)}. The least"
        f" error of one that was rejected was {least:.3g} times its tolerance. Outputs of {hidden} more were no further"
        " from the reference than the right build's.",
    ]
