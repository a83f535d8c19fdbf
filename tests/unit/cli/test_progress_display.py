import pytest
from msgspec.structs import replace
from rich.console import Console

from autosched.cli import progress_display
from autosched.cli.progress_display import Lines, line, picture
from samples import job_view


def drawn(width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(picture(job_view(), 22.0))
    return capture.get()


def test_the_display_shows_the_state_of_the_search() -> None:
    text = drawn()
    for wanted in ("job 7 squeezenet", "384/600 trials  64 %  eta 4m10s", "best 4.81 ms", "start 14.9 ms, x3.10",
                   "last gain 22s ago", "failed 7 %: 21 build timeout, 6 wrong result", "building conv1", "2 skipped",
                   "Ctrl-C detaches"):  # fmt: skip
        assert wanted in text


def test_the_display_fits_80_columns_and_shows_the_heaviest_task_first() -> None:
    text = drawn()
    assert max(map(len, text.splitlines())) <= 80
    assert text.index("conv2d 64x55x55") < text.index("conv2d 16x55x55")
    (heaviest,) = (line for line in text.splitlines() if "conv2d 64x55x55" in line)
    assert " %" in heaviest, "its share of the network"


def test_a_job_without_any_report_can_be_displayed() -> None:
    fresh = replace(
        job_view(), tasks=(), skipped=(), trials=0, trials_total=None, failed=0, estimate_s=None, eta_s=None
    )
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(picture(fresh, 0.0))
    assert "job 7" in capture.get()


def test_keys_are_shown_only_where_they_work() -> None:
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(picture(job_view(), 22.0, keys=True))
    text = capture.get()
    assert "w = all tasks, f = failures, e = explain, q = detach" in text
    assert "Ctrl-C" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_without_a_terminal_a_line_is_printed_at_intervals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(progress_display.time, "monotonic", lambda: now)
    lines, view = Lines(), job_view()
    for later in (0.0, 1.0, 29.0, 30.5, 31.0):
        now = later
        lines.show(view)
    lines.show(replace(view, state="done"))
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 3  # the first, one after 30 s, one because the state changed


def test_a_line_names_estimate_failures_and_eta() -> None:
    assert line(job_view()) == (
        "job 7 squeezenet: running, 384/600 trials, best 4.81 ms (start 14.9 ms, x3.10),"
        " failed 21 build timeout, 6 wrong result, eta 4m10s, building conv1 on host/0"
    )


def test_a_line_cuts_the_name_of_an_operator_that_many_were_fused_into() -> None:
    view = replace(job_view(), reason="building fused_" + "add_multiply_" * 20 + "tanh on host/0")
    assert line(view).endswith("building fused_add_multiply_add_multiply_add_mul… on host/0")
