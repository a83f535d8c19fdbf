"""`autosched plot` and `autosched device log` in edge cases: no data, one item, only failures."""

import json
from collections.abc import Callable, Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from autosched.cli.plot import HEIGHT
from autosched.errors import NotFound
from autosched.model import Record
from autosched.protocol import (
    DaemonInfo,
    GetJob,
    GetRecords,
    Info,
    ListDevices,
    ListNews,
    ListSpans,
    Method,
    NewsList,
    RecentEvent,
    RecordPage,
    SpanList,
    UnitList,
    UnitView,
)
from fake import Said
from samples import job_view, records, spans

PAGE = 2
"""Number of records in a page."""
UNIT = UnitView("cpu0", ("device:cpu",), (1,), "free")


class Fake:
    """A daemon with job 7 and unit cpu0."""

    def __init__(self) -> None:
        self.view = job_view()
        self.records: Sequence[Record] = records()
        self.spans = spans()
        self.news: tuple[RecentEvent, ...] = ()

    async def answer(self, method: Method) -> Struct:
        match method:
            case GetJob():
                return self.view
            case GetRecords(after=after):
                return RecordPage(tuple(self.records[after : after + PAGE]), after + PAGE < len(self.records))
            case Info():
                return DaemonInfo(
                    version="1", pid=1, uptime_s=1.0, policy="predictive", on_demand=False, state_dir="/s", address="",
                    jobs_active=0, jobs_total=1, steps_started=len(self.spans), rss_bytes=1,
                )  # fmt: skip
            case ListSpans(after=after):
                return SpanList(tuple(span for span in self.spans if span.step > after), self.view.now, False)
            case ListNews(unit="cpu0", limit=limit):
                return NewsList(self.news[-limit:])
            case ListDevices():
                return UnitList((UNIT,))
        raise NotFound("there is no unit of this name; there are: cpu0")


@pytest.fixture
def fake() -> Fake:
    return Fake()


def drawn(said: Said) -> list[str]:
    code, out, _ = said
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    return out.splitlines()


def test_a_curve_falls_from_the_first_estimate_to_the_last(command: Callable[..., Said], fake: Fake) -> None:
    fake.view = replace(fake.view, tasks=fake.view.tasks[:1])
    lines = drawn(command("plot", "7"))
    assert lines[0] == " job 7 squeezenet: best estimate 4.81 ms (start 14.9 ms, x3.10) after 384 trials"
    assert [lines[1].split()[:2], lines[HEIGHT].split()[:2]] == [["2.40", "ms"], ["800", "us"]], "two calls of it"
    assert json.loads(command("plot", "7", "-o", "json")[1])["estimates"], "of more than one page of records"


def test_what_was_measured_after_the_job_was_read_is_drawn(command: Callable[..., Said], fake: Fake) -> None:
    fake.view = replace(fake.view, tasks=fake.view.tasks[:1], now=1030.5)  # a step of it ends at 1032.0
    lines = drawn(command("plot", "7"))
    assert lines[HEIGHT].endswith("▁"), "the curve falls to its lowest"


@pytest.mark.parametrize("failed", [(), tuple(one for one in records() if one.failure is not None)])
def test_a_plot_without_valid_measurements_says_so(
    failed: tuple[Record, ...], command: Callable[..., Said], fake: Fake
) -> None:
    fake.records = failed
    code, out, err = command("plot", "7")
    assert (code, out) == (0, "")
    assert "has no estimate yet" in err
    assert "autosched job 7" in err
    assert json.loads(command("plot", "7", "-o", "json")[1]) == {"schema": 1, "estimates": []}


def test_a_plot_of_one_trial_is_drawn(command: Callable[..., Said], fake: Fake) -> None:
    fake.view = replace(fake.view, tasks=fake.view.tasks[:1], trials=1, trials_total=1, state="done", ended_at=1022.0)
    fake.records = records()[:1]
    lines = drawn(command("plot", "7"))
    assert lines[0].endswith(" after 1 trial")
    assert len(lines) == 3, "a curve that does not fall needs one line"


def test_a_plot_of_one_trial_without_duration_is_drawn(command: Callable[..., Said], fake: Fake) -> None:
    fake.view = replace(fake.view, tasks=fake.view.tasks[:1], trials=1, state="done", ended_at=1000.0, now=1000.0)
    fake.records, fake.spans = records()[:1], []
    assert drawn(command("plot", "7"))


def test_a_unit_without_history_says_so(command: Callable[..., Said]) -> None:
    code, out, err = command("device", "log", "cpu0")
    assert (code, out.splitlines()[0]) == (0, " cpu0 is free, 0 % busy so far")
    assert err == "Nothing out of the ordinary happened on cpu0. What ran:  autosched gantt --last 1h\n"
    assert json.loads(command("device", "log", "cpu0", "-o", "json")[1]) == {"schema": 1, "news": []}
    assert command("device", "log", "cpu0", "-o", "id")[1] == ""


def test_the_history_of_a_unit_is_shown(command: Callable[..., Said], fake: Fake) -> None:
    fake.news = tuple(
        RecentEvent(f"2026-01-01T00:00:0{second}+00:00", f"StepEnded failed {'because ' * 20}") for second in range(3)
    )
    lines = drawn(command("device", "log", "cpu0", "--limit", "1"))
    assert [line for line in lines if "StepEnded" in line] == [lines[-1]]
    assert lines[-1].startswith(" 2026-01-01 00:00:02  StepEnded failed because")
    assert len(drawn(command("device", "log", "cpu0"))) == len(lines) + 2
    assert len(command("device", "log", "cpu0", "-o", "id")[1].splitlines()) == 3


def test_an_unknown_unit_is_refused(command: Callable[..., Said]) -> None:
    code, out, err = command("device", "log", "cpu7")
    assert (code, out) == (4, "")
    assert "there are: cpu0" in err
