"""Formats numbers for people: latencies, durations, sizes, ratios. All outputs use these functions."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

SHARED_UNITS = "steps of this job shared units with others: its latencies are disturbed and no measure of the network"
"""Warning for a job whose steps shared units with others, which some policies allow."""
SECONDS_MAX = 1_000_000_000
"""Maximum seconds of times in messages (`model.Seconds`)."""
SOURCES_SHOWN = 1
"""Maximum number of sources of known schedules that are named after the first."""
WHOLE_MAX = 2**63 - 1
"""The largest number that programs in every language can read."""


def latency(seconds: float | None) -> str:
    """Three significant digits with a suitable unit: "412 us", "4.81 ms", "1.20 s"."""
    if seconds is None:
        return "-"
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds)} s"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Whole seconds, minutes and hours, the two largest of them: "45s", "4m10s", "1h52m"; "?" if unknown."""
    if seconds is None:
        return "?"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def seconds(text: str) -> float:
    """Seconds of a duration as people write it: "90", "45s", "4m10s", "1h30m", "2d". Raises ValueError."""
    found = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is no duration. Write seconds or for example 45s, 30m, 1h30m, 2d")
    whole = sum(float(part or 0) * each for part, each in zip(found.groups(), (86_400, 3_600, 60, 1), strict=True))
    if whole > SECONDS_MAX:
        raise ValueError(f"{text[:100]!r} is longer than the longest time that counts, {SECONDS_MAX // 86_400}d")
    return whole


def brief(text: str, longest: int = 40) -> str:
    """A text with its long words cut to a number of characters; names of fused operators are long."""
    return " ".join(word if len(word) <= longest else f"{word[: longest - 1]}…" for word in text.split(" "))


def compact(number: int) -> str:
    """A count in at most five characters: "64", "1k", "12.5k", "2M"."""
    for factor, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= factor:
            return f"{number / factor:.3g}{letter}"
    return str(number)


def size(count: float) -> str:
    """Bytes, in powers of 1024: "812 B", "1.9 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"


def ratio(value: float) -> str:
    """A speed-up: "x2.41", "x24"."""
    return f"x{value:.0f}" if value >= 99.5 else f"x{value:.1f}" if value >= 9.95 else f"x{value:.2f}"


def speed(theirs_s: float, ours_s: float) -> str:
    """Our latency compared with theirs, in seconds: "x1.20 faster", "x1.64 slower"."""
    return f"{ratio(theirs_s / ours_s)} faster" if ours_s <= theirs_s else f"{ratio(ours_s / theirs_s)} slower"


def tiny(value: float) -> str:
    """A difference that should be zero: "4.1e-07", "0"."""
    return f"{value:.1e}" if value else "0"


def share(part: float, whole: float) -> str:
    """Per cent without decimals; "-" if the whole is zero."""
    return f"{100 * part / whole:.0f} %" if whole else "-"


def gflops(flops: float, seconds: float | None) -> str:
    """Arithmetic speed in 1e9 operations per second."""
    return "-" if not seconds or not flops else f"{flops / seconds / 1e9:.1f}"


def came_from(sources: Sequence[str]) -> str:
    """The tasks with a schedule of the record store, by origin; empty if there are none.

    `sources`: for each task the origin of its best schedule; empty for one that its own job found.
    """
    known = Counter(source for source in sources if source)
    if not known:
        return ""
    first, *others = (f"{source} {number}" if len(known) > 1 else source for source, number in known.most_common())
    more = (
        f" and {count(len(others), 'other')}" if len(others) > SOURCES_SHOWN else "".join(f", {one}" for one in others)
    )
    return f"known: {known.total()} of {count(len(sources), 'task')}, from {first}{more}"


def reasons(failures: Mapping[str, int]) -> str:
    """Failures by reason, the most frequent first: "21 build timeout, 6 wrong result"."""
    ordered = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {reason}" for reason, count in ordered if count)


def failed_steps(number: int, last: str) -> str:
    """Number of steps that failed as a whole, and the message of the last one; empty for none."""
    return f"{count(number, 'step')} failed as a whole, the last one: {last}" if number else ""


def count(number: int, noun: str) -> str:
    """ "1 task", "2 tasks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def disturbed(records: int, all_records: int) -> str:
    """Number of disturbed records of all, for people. There are more records than trials: finals, and repetitions."""
    of_all = f" of {all_records}" if all_records else ""
    return f"{records}{of_all} measurements were disturbed by other load or by a slower device" if records else ""
