"""docs/notebooks.md: its Python code runs as written, cell by cell, on a store with two devices."""

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import autosched
import autosched.records
from autosched.errors import NotFound, RequestError
from autosched.model import Purpose
from autosched.recordstore import opening
from autosched.recordstore.store import RecordStore
from integration.lab import MODEL, Lab
from samples_of_store import CONV, HERE, LAB, measured

TEXT = (Path(__file__).parents[2] / "docs/notebooks.md").read_text()
CELLS = re.findall(r"^```python\n(.+?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lab.db"
    ryzen = replace(HERE, device="AMD Ryzen")
    other = replace(CONV, hash="beef", shape="conv2d 64x28x28 -> 64x28x28, 3x3")
    with contextlib.closing(RecordStore(opening.file_url(path))) as filled:
        filled.add(LAB, [measured(0, 3e-3), measured(1, 2e-3), measured(2, None), measured(3, 1e-3, where=ryzen)])
        filled.add(LAB, [measured(4, 1e-3, workload=other)])
    monkeypatch.setenv("AUTOSCHED_RECORDS", str(path))
    return path


def test_its_cells_run_one_after_the_other(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    said = []
    for code in CELLS:
        exec(compile(code, "docs/notebooks.md", "exec"), names)
        said.append(capsys.readouterr().out)
    assert "schedules=5" in said[0]
    assert CONV.shape in said[1]
    assert said[2].splitlines()[0] == "1100.0 us (1000.0 to 1200.0) squeeze"
    assert said[3].splitlines() == ["AMD Ryzen 0.0011", "AMD EPYC 0.0022", said[3].splitlines()[2]]
    assert said[3].endswith("conv2d 64x28x28 -> 64x28x28, 3x3\n")
    assert "'device': 'AMD Ryzen'" in said[4]
    assert names["curve"] == [(0, pytest.approx(3.3e-3)), (1, pytest.approx(2.2e-3)), (3, pytest.approx(1.1e-3))]


def test_a_store_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no record store"):
        autosched.records.open(tmp_path / "none.db")


def test_known_best_schedules_need_no_search(there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCHED_HOST", there.address)
    (tmp_path / "net.onnx").write_bytes(MODEL)
    model = autosched.load_model(tmp_path / "net.onnx")
    first = model.tune(trials=8, backend="mock")
    found = autosched.best(model, backend="mock")
    assert found.job.spec is not None
    assert (found.job.spec.trials, found.job.trials) == (0, 0)
    assert all(record.purpose is not Purpose.TRIAL for record in found.records)
    assert found.job.job != first.job.job
    with pytest.raises(RequestError, match="cannot be read"):
        autosched.best(tmp_path / "none.onnx")
