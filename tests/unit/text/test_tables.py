"""Lists in at most 80 characters, whatever their contents."""

import msgspec
import pytest

from autosched import formatting
from autosched.backend import OperatorTime, OperatorTimes
from autosched.protocol import JobView, LoopTask, Place, QueueView, UnitView
from autosched.text import tables

JOB = JobView(
    job=12, name="squeezenet", target='{"kind": "llvm", "mcpu": "x"}', device="cpu", backend="mock", state="running",
    reason="measuring conv on cpu0", detail="conv on cpu0", trials=384, trials_total=1000, failed=0, failures={},
    estimate_s=0.00481, first_estimate_s=0.0149, eta_s=840.0, submitted_at=0.0, ended_at=None, now=60.0, version=1,
    doing="profile",
)  # fmt: skip
LONG = msgspec.structs.replace(
    JOB, job=123456, name="a-model-with-a-very-long-name-indeed" * 3, target="a target that is too long to read",
    doing="starting", trials=123_456, trials_total=1_000_000, eta_s=123_456.0, estimate_s=12.3456,
    reason="waits for its turn\n on host" * 9, priority=100, deadline_at=5000.0,
)  # fmt: skip
UNIT = UnitView(
    "host/0", ("host",), (0,), "busy", job=123456, task=1, stage="profile", held_s=9.0, left_s=60.0, eta_s=8.0
)
LONG_UNIT = msgspec.structs.replace(
    UNIT, unit="a-board-in-the-cellar-3", pools=("host", "device:raspberry-pi-4"), state="stopping",
    stage="a-long-stage", drained="its fan is broken and a technician must look after it (uid 1)", health="it drifts",
    waiting=10_000,
)  # fmt: skip


@pytest.mark.parametrize("rows", [[JOB], [LONG], [JOB, LONG, JOB]])
def test_jobs_fit_eighty_characters(rows: list[JobView]) -> None:
    lines = tables.table(tables.JOBS, rows)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["JOB", "MODEL", "TARGET", "STATE", "TRIALS", "BEST", "ETA", "REASON"]
    assert len(lines) == 1 + len(rows)


SICK = msgspec.structs.replace(LONG_UNIT, state="quarantined", eta_s=36_000.0, busy_ratio=1.0)


@pytest.mark.parametrize("rows", [[UNIT], [LONG_UNIT], [UNIT, LONG_UNIT], [UNIT, SICK, LONG_UNIT]])
def test_devices_fit_eighty_characters(rows: list[UnitView]) -> None:
    lines = tables.table(tables.DEVICES, rows)
    assert max(map(len, lines)) <= 80
    assert [lines[0].index(title) for title in ("UNIT", "ETA", "REASON")]


def test_a_unit_says_what_it_does_and_why_not() -> None:
    assert tables.unit_facts(UNIT) == [
        "host/0 is busy, 0 % busy so far",
        "job 123456 has held it for 9s, profile, likely done in 8s, killed in 1m00s at the latest",
        "0 tasks in its queue",
    ]
    told = "\n".join(tables.unit_facts(LONG_UNIT))
    assert "it gets no steps: drained, its fan is broken" in told
    assert "autosched undrain a-board-in-the-cellar-3" in told
    assert "10000 tasks in its queue. See:  autosched queue" in told


def test_queues_fit_eighty_characters() -> None:
    places = tuple(Place(123456, task, "a-long-stage", 123.0) for task in range(20))
    lines = tables.table(tables.QUEUES, [QueueView("device:raspberry-pi-4", 10, 2, 99_999, places)])
    assert max(map(len, lines)) <= 80


def test_a_task_of_the_loop_waits_where_its_innermost_call_does() -> None:
    rows = [LoopTask(3, "the door", ("serve at main.py:1", "guests at hall.py:2")), LoopTask(4, "new", ())]
    assert [line.split() for line in tables.table(tables.TASKS, rows)[1:]] == [
        ["3", "the", "door", "guests", "at", "hall.py:2"],
        ["4", "new"],
    ]


def test_a_job_in_a_line() -> None:
    (_, line) = tables.table(tables.JOBS, [JOB])
    assert line == "  12  squeezenet  llvm    profile  384/1k  4.81ms  14m00s  conv on cpu0"


def test_wide_cuts_nothing_and_has_more() -> None:
    head, line = tables.table(tables.JOBS, [LONG], wide=True)
    assert LONG.name in line
    assert "PRIORITY" in head
    assert "\n" not in line


def test_nothing_that_a_terminal_would_obey_gets_through() -> None:
    evil = msgspec.structs.replace(JOB, name="\x1b[2J\x07net\r\n")
    text = "\n".join(tables.table(tables.JOBS, [evil], wide=True))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_csv_has_all_columns_and_quotes() -> None:
    head, row = tables.comma_separated(tables.JOBS, [msgspec.structs.replace(JOB, name='a,"b"')]).splitlines()
    assert head.split(",") == [column.title for column in tables.JOBS]
    assert '"a,""b"""' in row


@pytest.mark.parametrize(
    ("text", "shown"), [("auto", "auto"), ('{"kind": "cuda"}', "cuda"), ("[1]", "[1]"), ("{", "{")]
)
def test_a_target_in_a_word(text: str, shown: str) -> None:
    assert tables.target(text) == shown


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (1_000, "1k"), (1_536, "1.54k"), (12_500, "12.5k"), (2_000_000, "2M")]
)
def test_compact_counts(number: int, text: str) -> None:
    assert formatting.compact(number) == text


def test_operators_fit_eighty_characters_and_end_with_their_sum() -> None:
    long_name = "conv2d NCHW16c+add+add+6 more 240x12x80 -> 240x12x80, 1x1"
    rows = (OperatorTime(long_name, "tuned", 4, 8e-3), OperatorTime("memory", "virtual machine", 100, 1.9e-3))
    lines = tables.operator_table(OperatorTimes(10e-3, rows))
    assert all(len(line) <= tables.WIDTH for line in lines)
    assert "80 %" in lines[1]
    assert lines[-1] == " sum 9.90 ms of 10.0 ms: 99 %"
