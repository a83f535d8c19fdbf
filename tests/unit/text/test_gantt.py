import pytest

from autosched.protocol import Span
from autosched.text.gantt import BLOCKS, OTHER_BLOCK, ansi, busy_s, gantt, idle_lines, speaks_unicode


def span(step: int, job: int, stage: str, unit: str, start: float, end: float | None) -> Span:
    return Span(step, job, 1, stage, (unit,), start, start, end, "done")


SPANS = (
    span(1, 1, "build", "host/0", 0, 25),
    span(2, 2, "build", "host/0", 25, 50),
    span(3, 1, "profile", "cpu0", 25, 100),
    span(4, 12, "update", "host/0", 75, None),
)


def test_rows_are_units_and_runs_are_steps() -> None:
    assert gantt(SPANS, 0, 100, width=55) == [
        "host/0 ▏1 build███2 build███          12 update▒▏  75 %",
        "cpu0   ▏          1 profile▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▏  75 %",
        "        0s                                 1m40s",
        "        █ build  ▓ profile  ▒ update",
    ]


def test_a_step_without_length_is_named_all_the_same() -> None:
    """A step can begin and end within one tick of the daemon's clock."""
    for start, end in ((5.0, 6.0), (4.0, 5.0), (5.0, 5.0)):
        assert "█ build" in gantt([span(1, 1, "build", "host/0", 5.0, 5.0)], start, end)[-1]
    assert "build" not in "\n".join(gantt([span(1, 1, "build", "host/0", 5.0, 5.0)], 6.0, 7.0))


def test_why_units_were_idle_is_said_below() -> None:
    idle = {"cpu0": {"nothing ready": 6.0, "no job": 19.0, "held": 0.1}, "gone": {"no job": 100.0}}
    assert idle_lines(idle, 100.0, ["host/0", "cpu0"]) == ["cpu0    idle: 19 % no job, 6 % nothing ready"]


def test_ascii_says_the_same() -> None:
    lines = gantt(SPANS, 0, 100, width=55, unicode=False)
    assert lines[0] == "host/0 |1 build###2 build###          12 update~|  75 %"
    assert all(line.isascii() for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 133])
@pytest.mark.parametrize("end", [1.0, 7.0, 100.0, 1e6])
def test_lines_are_as_wide_as_asked_for(width: int, end: float) -> None:
    lines = gantt(SPANS, 0, end, width=width)
    assert {len(line) for line in lines[:2]} == {width}
    assert max(map(len, lines)) <= width


def test_short_steps_still_fill_a_cell_together() -> None:
    spans = [span(i, 1, "build", "a", i, i + 0.9) for i in range(1000)]
    (row, *_) = gantt(spans, 0, 1000, width=60)
    assert set(row.split("▏")[1]) == {BLOCKS["build"]}
    assert row.endswith(" 90 %")


def test_a_mostly_idle_cell_is_blank() -> None:
    (row, *_) = gantt([span(1, 1, "build", "a", 50, 50.1)], 0, 100, width=60)
    assert row.split("▏")[1].strip() == ""


def test_what_is_outside_the_window_is_not_shown() -> None:
    assert gantt(SPANS, 50, 75, units=["host/0"], width=40)[0].split("▏")[1].strip() == ""
    assert "update" not in gantt(SPANS, 0, 60)[-1]


def test_units_can_be_named() -> None:
    assert [line.split()[0] for line in gantt(SPANS, 0, 100, units=["cpu0", "host/0", "gpu0"])[:3]] == [
        "cpu0", "host/0", "gpu0",
    ]  # fmt: skip


def test_other_stages_share_a_block() -> None:
    line, _, legend = gantt([span(1, 1, "import", "a", 0, 10)], 0, 10, width=40)
    assert OTHER_BLOCK in line
    assert legend.endswith(f"{OTHER_BLOCK} import")


def test_colours_do_not_change_the_text() -> None:
    marked = gantt(SPANS, 0, 100, style=lambda span, text: f"<{span.job}:{text}>")
    assert "<12:12 update" in marked[0]
    assert "\x1b[32m1 build" in gantt(SPANS, 0, 100, style=ansi)[0]


def test_nothing_at_all() -> None:
    assert len(gantt((), 0, 0)) == 1
    assert gantt((), 0, 0, units=["a"])[0].endswith("    -")


def test_busy_time_counts_overlaps_once() -> None:
    overlapping = [span(1, 1, "x", "a", 0, 10), span(2, 2, "x", "a", 5, 8), span(3, 3, "x", "a", 9, 20)]
    assert busy_s(overlapping, "a", 0, 100) == 20
    assert busy_s(overlapping, "a", 5, 12) == 7
    assert busy_s(overlapping, "b", 0, 100) == 0
    assert busy_s([span(1, 1, "x", "a", 90, None)], "a", 0, 100) == 10


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("utf-8", True), ("ascii", False), ("latin-1", False), (None, False), ("nonsense", False)],
)
def test_terminals(encoding: str | None, expected: bool) -> None:
    assert speaks_unicode(encoding) is expected
