"""Panels of `autosched top`, as lines."""

from collections import deque

import msgspec
import pytest

from autosched.model import JobFailure
from autosched.protocol import DaemonInfo, DeviceCondition, JobView, Span, UnitView
from autosched.text.curve import LABEL_WIDTH, axis, curve
from autosched.top import panels
from autosched.top.changes import news
from autosched.top.daemon_view import ENDED_SHOWN, DaemonView, ordered
from autosched.top.plain import frame
from autosched.top.poller import DaemonPoller

INFO = DaemonInfo("1", 5, 90.0, "predictive", False, "/s", "unix:/s", 1, 1, 9, 1, goal="balanced")
LANE = UnitView("host/0", ("host",), (0,), "busy", job=1, stage="build")
DEVICE = UnitView(
    "cpu0", ("device:cpu",), (1,), "free", health="steady, noise 1 % core, 2 % memory", condition=DeviceCondition.STEADY
)


def job(number: int = 1, **words: object) -> JobView:
    given = {
        "job": number, "name": "squeezenet", "target": "auto", "device": "cpu", "backend": "mock", "state": "running",
        "reason": "building conv on host/0", "trials": 8, "trials_total": 64, "failed": 0, "failures": {},
        "estimate_s": None, "first_estimate_s": None, "eta_s": 90.0, "submitted_at": 0.0, "ended_at": None, "now": 1.0,
        "version": 1, "doing": "build",
    }  # fmt: skip
    return JobView(**given | words)  # type: ignore[arg-type]


def look(*jobs: JobView, units: tuple[UnitView, ...] = (LANE, DEVICE), info: DaemonInfo = INFO) -> DaemonView:
    return DaemonView(info, jobs, units, 100.0)


def changed(view: UnitView, **words: object) -> UnitView:
    return msgspec.structs.replace(view, **words)


def test_the_headline_counts_jobs() -> None:
    assert panels.headline(look(job(1), job(2), job(3, state="done"))) == (
        "1 running, 1 waiting   predictive, balanced   up 1m30s"
    )


def test_the_time_line_moves_and_shows_devices_first() -> None:
    spans = [Span(1, 1, 1, "build", ("host/0",), 0.0, 60.0, None, "running"),
             Span(2, 1, 1, "profile", ("cpu0",), 0.0, 10.0, 30.0, "done")]  # fmt: skip
    lines = panels.time_line(look(), spans, 60.0, 80, 10)
    assert lines[0].startswith("cpu0   ▏")
    assert lines[0].endswith("0 %")  # that was longer ago
    assert lines[1].endswith(" 67 %")
    assert lines[1].rstrip("▏ %67").endswith("█")
    assert "-1m00s" in lines[2]
    assert "now" in lines[2]
    assert all(len(line) <= 80 for line in lines)


def test_what_has_no_room_is_counted() -> None:
    many = tuple(changed(LANE, unit=f"host/{n}") for n in range(20))
    lines = panels.time_line(look(units=(*many, DEVICE)), [], 60.0, 80, 6)
    assert len(lines) <= 6
    assert lines[0].startswith("cpu0")
    assert "17 more" in lines[-1]


def test_trouble_comes_first_and_the_rest_is_counted() -> None:
    drifts = changed(DEVICE, unit="cpu1", health="drifting for 5s: slower", condition=DeviceCondition.DRIFTING)
    drained = changed(DEVICE, unit="cpu2", drained="new fan")
    seen = look(units=(DEVICE, drifts, drained))
    assert panels.health(seen, 80, 3) == [
        "! cpu2 drained: new fan",
        "cpu1: drifting for 5s: slower",
        "cpu0: steady, noise 1 % core, 2 % memory",
    ]
    assert panels.health(seen, 80, 2) == ["! cpu2 drained: new fan", "2 more: autosched devices"]


def test_a_job_fits_its_row() -> None:
    cells = panels.job_cells(job(priority=5, estimate_s=0.00481, reason="x" * 100), 80)
    assert cells[:6] == ("1", "squeezenet", "build", "8/64", "4.81ms", "1m30s")
    assert cells[6].startswith("priority 5; xxx")
    assert cells[6].endswith("…")
    assert sum(size + 1 for _, size in panels.JOB_COLUMNS) + len(cells[6]) == 80


def test_a_failed_job_says_why() -> None:
    cells = panels.job_cells(job(state="failed", doing="failed", failure=JobFailure("x", "no LSTM\nmore")), 80)
    assert cells[2:] == ("failed", "8/64", "-", "", "no LSTM")


@pytest.mark.parametrize("height", [1, 3, 5])
def test_a_curve_falls_from_the_first_to_the_best(height: int) -> None:
    lines = curve([(0.0, 0.010), (50.0, 0.004)], 100.0, 49, height)
    assert len(lines) == height
    bars = [line[LABEL_WIDTH:] for line in lines]
    assert {bar[:19] for bar in bars} == {"█" * 19}
    assert {bar[21:] for bar in bars[:-1]} <= {" " * 19}
    assert bars[-1][21:] == "▁" * 19
    assert lines[0].startswith(" 10.0 ms")
    if height > 1:
        assert lines[-1].startswith(" 4.00 ms")


def test_a_fall_too_quick_for_the_scale_is_seen() -> None:
    lines = curve([(0.0, 0.010), (0.1, 0.004)], 100.0, 49, 3)
    assert [line[LABEL_WIDTH:].rstrip() for line in lines] == ["█", "█", "█" + "▁" * 39]
    assert curve([(5.0, 0.010)], 5.0, 12, 1) == [f"{'10.0 ms':>8} ▁▁▁"]


def test_a_curve_ends_with_the_last_point() -> None:
    start, now = 0.69, 5.8
    assert start + (now - start) < now, "rounded"
    assert curve([(start, 0.010), (now, 0.004)], now, 40, 1)[0].endswith("▁")


def test_a_curve_without_points_says_so() -> None:
    assert curve([], 1.0, 40, 4) == ["no estimate yet: not every task was measured"]


# News -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (None, look(job(1)), []),
        (look(), look(job(1)), ["job 1 squeezenet was submitted"]),
        (look(), look(job(1, ended_at=5.0)), []),  # it was out of sight
        (look(job(1)), look(job(1, state="done")), ["job 1 squeezenet is done"]),
        (look(job(1)), look(job(1, state="failed", failure=JobFailure("x", "no LSTM\nx"))),
         ["job 1 squeezenet is failed: no LSTM"]),
        (look(job(1)), look(job(1, estimate_s=0.004, first_estimate_s=0.008)),
         ["job 1 squeezenet: 4.00 ms (start 8.00 ms, x2.00)"]),
        (look(job(1)), look(job(1, failed_steps=1, last_error="build: oops")),
         ["job 1 squeezenet: a step failed: build: oops"]),
        (look(), look(units=(LANE, changed(DEVICE, drained="fan"))), ["cpu0 is drained: fan"]),
        (look(units=(changed(DEVICE, drained="fan"),)), look(units=(DEVICE,)), ["cpu0 gets steps again"]),
        (look(), look(units=(changed(DEVICE, condition=DeviceCondition.DRIFTING),)), ["cpu0 drifts"]),
        (look(), look(info=msgspec.structs.replace(INFO, pid=6)), ["another daemon answers: it was started again"]),
        (look(), look(info=msgspec.structs.replace(INFO, goal="makespan")), ["policy predictive, goal makespan"]),
        (look(), look(info=msgspec.structs.replace(INFO, warnings=("disk",))), ["! disk"]),
    ],
)  # fmt: skip
def test_what_is_different_is_told(before: DaemonView | None, now: DaemonView, words: list[str]) -> None:
    assert list(news(before, now)) == words


# Looks ----------------------------------------------------------------------------------------------------------------


def test_active_jobs_come_first_and_few_of_the_ended() -> None:
    ended = tuple(job(number, state="done", ended_at=float(number)) for number in range(1, 60))
    shown = ordered((*ended, job(60), job(61)))
    assert [one.job for one in shown[:3]] == [60, 61, 59]
    assert len(shown) == 2 + ENDED_SHOWN


def test_a_curve_has_a_point_where_it_changes_and_goes_with_its_job() -> None:
    watch = DaemonPoller()
    for now, estimate_s in ((1.0, None), (2.0, 0.008), (3.0, 0.008), (4.0, 0.004)):
        watch._note(msgspec.structs.replace(look(job(1, estimate_s=estimate_s)), now=now))
    assert watch.curves == {1: deque([(2.0, 0.008), (4.0, 0.004)])}
    watch._note(look())
    assert watch.curves == {}


def test_the_plain_view_fits_the_screen() -> None:
    watch = DaemonPoller()
    watch.last = look(*(job(number) for number in range(1, 50)))
    lines = frame(watch, 80, 24).plain.split("\n")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "autosched[tui]" in lines[-1]
    watch.last = look()
    assert "autosched tune MODEL.onnx" in frame(watch, 80, 24).plain


def test_a_curve_without_blocks_and_its_axis() -> None:
    lines = curve([(0.0, 0.010), (50.0, 0.004)], 100.0, 29, 2, unicode=False)
    assert {letter for line in lines for letter in line[9:]} == {"#", " ", "."}
    assert axis(0.0, 100.0, 39).split() == ["0s", "50s", "1m40s"]
    assert len(axis(0.0, 100.0, 39)) == 39
