from pathlib import Path

import pytest
from msgspec.structs import replace

from autosched import report
from autosched.api.result_folder import Result
from autosched.backend import Difference, NoteGroup, OperatorTime, OperatorTimes
from autosched.cli import output
from autosched.cli.result_summary import operators, outcome
from autosched.model import Purpose, Record
from samples import evaluation, job_view, records, spans


def told(tmp_path: Path, **changes: object) -> str:
    view = replace(job_view(), state="done", ended_at=1254.0, **changes)
    files = (tmp_path / "squeezenet.so", tmp_path / "report.html")
    return "\n".join(outcome(Result(report.gather(view, evaluation(), records(), spans()), tmp_path, files)))


def test_the_summary_contains_all_required_facts(tmp_path: Path) -> None:
    text = told(tmp_path)
    for wanted in ("384 trials on 2 tasks in 4m14s, job 7", "untuned         400 ms", "tuned          16.0 ms",
                   "x25.0 slower than tuned", "ONNX Runtime   4.60 ms", "x3.48 SLOWER than ONNX Runtime",
                   "Stay with ONNX Runtime", "outputs equal to",
                   "failed trials 27 of 384: 21 build timeout, 6 wrong result", "on core 1"):  # fmt: skip
        assert wanted in text
    assert max(map(len, text.replace(str(tmp_path), "").splitlines())) <= 90


def test_advice_comes_first_and_notes_of_a_kind_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quantised detector once ended in forty lines, with the advice below them."""
    groups = (
        NoteGroup("tuned by backend ansor, since nothing is summed up", ("fused_max1", "fused_max2", "fused_max3")),
        NoteGroup("tuned by backend ansor, since it is no sum of products", ("sum",)),
    )
    measured = replace(evaluation(), notes=("the batch is 1",), note_groups=groups)
    ended = replace(job_view(), state="done", ended_at=1254.0)
    result = Result(report.gather(ended, measured, records(), spans()), tmp_path, ())
    lines = list(outcome(result))
    advice = next(n for n, line in enumerate(lines) if "Stay with ONNX Runtime" in line)
    assert "SLOWER" in lines[advice - 1]
    assert [line for line in lines if line.startswith(" ! ")][1:4] == [
        " ! the batch is 1",
        " ! 3 operators: tuned by backend ansor, since nothing is summed up",
        " ! sum: tuned by backend ansor, since it is no sum of products",
    ]
    assert not any("fused_max2" in line for line in lines)
    assert any("--verbose" in line for line in lines)
    monkeypatch.setattr(output, "verbose", True)
    assert "     fused_max2" in list(outcome(result))
    page = report.page(result.report)
    assert "<summary>3 operators: tuned by backend ansor, since nothing is summed up</summary>" in page
    assert "<li>fused_max2</li>" in page


def test_the_summary_names_three_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path.parent)
    following = told(tmp_path).partition(" Next:\n")[2].splitlines()
    assert [line.split()[1] for line in following[:2]] == ["run", "evaluate"]
    assert following[0].endswith(f"./{tmp_path.name}/squeezenet.so")
    assert len(following) == 3


def test_the_summary_names_the_job_whose_results_it_replaced(tmp_path: Path) -> None:
    gathered = report.gather(replace(job_view(), state="done", ended_at=1254.0), None, records(), spans())
    text = "\n".join(outcome(Result(gathered, tmp_path, (), 5)))
    assert " ! in place of those of job 5; to have them too:  autosched attach 5 -o DIR\n Next:" in text


def test_the_summary_of_compile_names_the_job_whose_trials_it_used(tmp_path: Path) -> None:
    spec = job_view().spec
    assert spec is not None
    assert "compiled with the trials of job 3" in told(tmp_path, trials=0, failed=0, spec=replace(spec, records_from=3))


def test_steps_that_shared_units_are_reported(tmp_path: Path) -> None:
    assert "its latencies are disturbed" in told(tmp_path, shared_units=True)
    assert "latencies are" not in told(tmp_path)


def test_the_summary_reports_finals_and_disturbances(tmp_path: Path) -> None:
    made = [(1, b"c", Purpose.FINAL, 2e-3), (1, b"", Purpose.DEFAULT, 1e-3)]
    held = [
        Record(task=task, number=10 + i, candidate=candidate, latency_s=(s,), purpose=purpose)
        for i, (task, candidate, purpose, s) in enumerate(made)
    ]
    gathered = report.gather(replace(job_view(), disturbed_records=4, records=12), None, [*records(), *held], spans())
    text = "\n".join(outcome(Result(gathered, tmp_path, ())))
    assert " finals of 1 task changed the best of 0, the default won 1" in text
    assert " 4 of 12 measurements were disturbed by other load or by a slower device" in text
    assert max(map(len, text.replace(str(tmp_path), "").splitlines())) <= 90
    assert "finals of" not in told(tmp_path)


def test_the_summary_shows_the_slowest_operators() -> None:
    rows = (
        OperatorTime("a", "tuned", 1, 6e-3), OperatorTime("b", "by rule", 1, 1e-3), OperatorTime("c", "tuned", 1, 2e-3),
    )  # fmt: skip
    assert "schedules: tuned 80 %, by rule 10 %;" in operators(OperatorTimes(10e-3, rows))


def test_a_rejected_build_is_shown_with_its_file(tmp_path: Path) -> None:
    measured = replace(evaluation(), difference=Difference("y", 0, (2,), "1", "2", 1e-5, "tuned"))
    gathered = report.gather(replace(job_view(), state="done", ended_at=1254.0), measured, records(), spans())
    files = (tmp_path / "net.rejected.so", tmp_path / "net.so")
    text = "\n".join(outcome(Result(gathered, tmp_path, files)))
    assert "y[2] of sample 0 is 2, not 1" in text
    assert f"look into: {tmp_path}/net.rejected.so" in text
    assert f"autosched run {tmp_path}/net.so" in text
    assert "y[2] of sample 0 is 2, not 1" in report.page(gathered)
