"""The sections of RESULTS.md on restarts and on damage."""

from typing import Any


def restart(told: dict[str, Any]) -> list[str]:
    """How soon a daemon with a long past serves."""
    return [
        f"## A restart with {told['jobs']:,} jobs",
        "",
        f"`python benchmarks/restart_cost.py`: a database of {told['database_mb']:.0f} MB with {told['rows']:,} rows"
        f" ({told['events']:,} events, {told['records']:,} records, {told['spans']:,} steps), all of which are checked;"
        f" then kill -9 and a start, of {told['runs']} the median, on the host's cores only.",
        "",
        "| | bar | measured |",
        "|---|---|---|",
        f"| start of the process to the first answer | 5 s | {told['serving_s']:.1f} s |",
        f"| processor time of that | - | {told['serving_cpu_s']:.1f} s |",
        f"| of it the check of all rows | - | {told['check_cpu_s']:.1f} s |",
        f"| the same without a snapshot (all events are replayed) | - | {told['without_snapshot_s']:.1f} s |",
        f"| size of a snapshot, made in | - | {told['snapshot_mb']:.0f} MB, {told['snapshot_s']:.1f} s |",
        f"| resident memory after the start | - | {told['daemon_rss_mb']:.0f} MB |",
    ]


def flips(told: dict[str, Any]) -> list[str]:
    """Which flipped bits are found."""
    lines = [
        "## Single flipped bits",
        "",
        "`python benchmarks/bit_flips.py`: one bit anywhere in the database or in its write-ahead log, then the check",
        "of a start. Harmless: in space that nobody reads.",
        "",
        "| in | flips | found | harmless | missed |",
        "|---|---|---|---|---|",
    ]
    for name, words in (("file", "the database"), ("log", "its log")):
        part = told[name]
        flipped = part["found"] + part["harmless"] + part["missed"]
        lines.append(
            f"| {words}, {told[f'{name}_bytes'] / 1e3:.0f} kB | {flipped} | {part['found']} | {part['harmless']} |"
            f" {part['missed']} |"
        )
    return [*lines, "", f"Found of those that change anything: {100 * told['found_share']:.1f} % (bar: 99 %)."]
