"""Models of an experiment, its jobs, its folder and its table."""

import csv
import json
from pathlib import Path

import pytest

from autosched import zoo
from autosched.errors import NotFound, Refused, RequestError
from autosched.experiments import models, table, workspace
from autosched.experiments.definition import parse
from autosched.experiments.parameters import PARAMETERS, parameter, settings
from autosched.experiments.plan import Plan, plan
from autosched.experiments.rows import Row
from autosched.experiments.workspace import Source, Workspace
from autosched.model import COMBINATION, EXPERIMENT, EXPERIMENT_JOBS


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "nets").mkdir()
    for name in ("a.onnx", "b.onnx", "notes.txt"):
        (tmp_path / "nets" / name).write_bytes(name.encode())
    return tmp_path


def planned(folder: Path, text: str) -> Plan:
    return plan(parse(text, folder / "mine.toml"))


def test_folders_patterns_files_and_names_of_the_zoo(tmp_path: Path) -> None:
    known = next(iter(zoo.catalogue()))
    words = ["nets", "nets/a.onnx", "nets/*.txt", known, str(tmp_path / "nets/b.onnx")]
    assert models.expand(words, tmp_path) == [
        "nets/a.onnx", "nets/b.onnx", "nets/a.onnx", "nets/notes.txt", known, str(tmp_path / "nets/b.onnx"),
    ]  # fmt: skip
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match=r"no model in the folder empty: no file that ends with .onnx"):
        models.expand(["empty"], tmp_path)


def test_a_folder_gives_a_job_for_each_model(tmp_path: Path) -> None:
    found = planned(tmp_path, '[parameters]\nmodel = "nets"\n[[exclude]]\nmodel = "nets/b.onnx"\n')
    assert [job.values["model"] for job in found.jobs] == ["nets/a.onnx"]


def test_one_model_under_two_names_is_one_job(tmp_path: Path) -> None:
    found = planned(tmp_path, f'[parameters]\nmodel = ["nets/a.onnx", "{tmp_path}/nets/a.onnx"]\n')
    assert len(found.jobs) == 1


def test_another_file_under_the_same_name_is_another_job(tmp_path: Path) -> None:
    text = '[parameters]\nmodel = "nets/a.onnx"\n'
    before = planned(tmp_path, text).jobs[0].combination
    (tmp_path / "nets/a.onnx").write_bytes(b"trained anew")
    assert planned(tmp_path, text).jobs[0].combination != before


def test_settings_of_a_job(tmp_path: Path) -> None:
    text = """
[parameters]
model = "nets/a.onnx"
shape = "x=1,3,48,48"
trials = 8
layout = "nhwc"
deadline = "30m"
target_ms = 2.5
option.population = 64
label.repeat = 3
[labels]
team = "vision"
"""
    found = planned(tmp_path, text)
    (job,) = found.jobs
    made = found.settings(job)
    assert (made.trials, made.deadline_s, made.target_ms, made.fresh, made.priority) == (8, 1800.0, 2.5, True, -10)
    assert made.options == {"population": 64, "layout": "nhwc"}
    assert made.labels == {
        "team": "vision", EXPERIMENT: "mine", EXPERIMENT_JOBS: "1", COMBINATION: job.combination,
    }  # fmt: skip
    assert job.model.shapes == {"x": (1, 3, 48, 48)}


def test_every_parameter_has_a_place_in_the_settings_or_is_of_the_daemon() -> None:
    samples = {"target_ms": 1.0, "trials": 8, "cores": 1, "improve_by": 0.5, "deadline": "1m"}
    for name in PARAMETERS.keys() - {"model", "shape", "policy", "goal", "settings", "layout"}:
        assert parameter(name) is PARAMETERS[name]
        value = samples.get(name, PARAMETERS[name].default)
        assert value is not None
        made = settings({name: value}, {}, 0)
        assert getattr(made, "deadline_s" if name == "deadline" else name) is not None


def row(name: str, **fields: object) -> Row:
    return Row(**{"combination": name, "values": {"model": name}, "job": 1, "state": "done", **fields})  # type: ignore[arg-type]


def test_rows_are_kept_and_found_by_plan(tmp_path: Path) -> None:
    found = planned(tmp_path, '[parameters]\nmodel = "nets"\nseed = [0, 1]\n')
    place = Workspace("mine")
    first, second, third, fourth = (job.combination for job in found.jobs)
    place.add(row(third))
    place.add(row(first))
    place.add(row(second, state="cancelled"))
    place.add(row("of another file"))
    assert list(place.rows_of(found)) == [first, third], "in the order of the jobs; what was cancelled runs again"
    (place.folder / "rows" / f"{first}.json").write_text("{")
    assert list(place.rows_of(found)) == [third], "a damaged row is as none"
    assert fourth not in place.rows()


def test_an_experiment_is_run_by_one_process(tmp_path: Path) -> None:
    place = Workspace("mine")
    assert place.runner() is None
    with place.locked():
        assert Workspace("mine").runner() is not None
        with pytest.raises(
            Refused, match=r"experiment mine is run by process \d+ already.*autosched experiment status"
        ):
            place.locked().__enter__()
    assert place.runner() is None


def test_experiments_that_have_run_here(tmp_path: Path) -> None:
    assert workspace.known() == {}
    with pytest.raises(NotFound, match="no experiment 'mine' has run here; there are: none"):
        Workspace("mine").source()
    Workspace("mine").keep(Source("mine.toml", "text"))
    assert list(workspace.known()) == ["mine"]
    assert Workspace("mine").source() == Source("mine.toml", "text")


ROWS = [
    row("a", values={"model": "a", "trials": 8}, latency_s=1e-3, engine_s=2e-3, flops=1e9, trials=8, took_s=3.0),
    row("b", values={"model": "b", "option.x": True}, state="failed", failure='it said "no", twice\n'),
]


def test_the_table_has_parameters_then_figures() -> None:
    first, second = table.flat(ROWS)
    assert list(first)[:3] == ["model", "set_trials", "option.x"]
    assert (first["speedup"], first["gflops"], first["set_trials"], first["trials"]) == (2.0, 1000.0, 8, 8)
    assert (second["latency_s"], second["speedup"], second["gflops"], second["set_trials"]) == (None,) * 4
    assert list(table.columns(ROWS)) == list(first) == list(second)
    assert table.columns(ROWS)["option.x"] is bool


def test_the_table_as_files(tmp_path: Path) -> None:
    assert table.write(ROWS, tmp_path / "all.csv") == 2
    with (tmp_path / "all.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["model"], float(first["latency_s"]), second["latency_s"]) == ("a", 1e-3, "")
    assert second["failure"] == 'it said "no", twice\n'
    parquet = pytest.importorskip("pyarrow.parquet")
    assert table.write(ROWS, tmp_path / "all.parquet") == 2
    assert json.loads(json.dumps(parquet.read_table(tmp_path / "all.parquet").to_pylist())) == table.flat(ROWS)


def test_a_table_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"written as .csv, .parquet or .md"):
        table.write(ROWS, tmp_path / "all.xlsx")
    with pytest.raises(RequestError, match="cannot be written: No such file or directory"):
        table.write(ROWS, tmp_path / "none/all.csv")


def test_each_figure_has_a_name_of_its_own_and_a_meaning() -> None:
    names = [figure.name for figure in table.FIGURES]
    assert len(set(names)) == len(names)
    assert all(figure.meaning for figure in table.FIGURES)
    assert set(table.TIMES) <= {*names, *table.OF_BATCHES}
