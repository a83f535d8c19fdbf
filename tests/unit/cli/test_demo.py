from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from autosched import zoo
from autosched.api.result_folder import Result
from autosched.backend import Evaluation, Timing
from autosched.cli import demo
from autosched.errors import RequestError

pytestmark = pytest.mark.slow


def test_the_simulated_part_compares_the_policies(capsys: pytest.CaptureFixture[str]) -> None:
    demo._simulate()
    lines = capsys.readouterr().out.splitlines()
    speedups = {words[0]: words[-2] for words in map(str.split, lines[2:6])}
    assert list(speedups) == ["sequential", "synchronous", "interleaved", "predictive"]
    assert speedups["sequential"] == "1.00x"
    assert float(speedups["interleaved"][:-1]) > 1.5
    assert "No schedule can exceed 1.7" in lines[6]
    assert any(line.strip().startswith("cpu0") for line in lines[7:])
    assert max(map(len, lines)) <= 80


def test_the_networks_are_in_the_catalogue() -> None:
    assert {name for name, _ in (*demo.NETWORKS, *demo.OFFLINE_NETWORKS)} <= zoo.catalogue().keys()


def test_without_a_package_index_networks_of_the_onnx_package_are_tuned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def model(name: str) -> object:
        if name in dict(demo.NETWORKS):
            raise RequestError(f"{name}: pip could not fetch it")
        return name

    monkeypatch.setattr(demo, "_model", model)
    assert demo._networks() == list(demo.OFFLINE_NETWORKS)
    assert "random weights" in capsys.readouterr().err


def test_the_demo_neither_sees_nor_changes_the_users_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("AUTOSCHED_HOST", "tcp://127.0.0.1:1")
    monkeypatch.delenv("AUTOSCHED_STATE_DIR", raising=False)
    with demo._private_state():
        assert "AUTOSCHED_HOST" not in os.environ
        folder = os.environ["AUTOSCHED_STATE_DIR"]
        assert os.path.isdir(folder)
    assert os.environ["AUTOSCHED_HOST"] == "tcp://127.0.0.1:1"
    assert "AUTOSCHED_STATE_DIR" not in os.environ
    assert not os.path.exists(folder)


def test_a_result_names_its_gain_and_the_rival(capsys: pytest.CaptureFixture[str]) -> None:
    latencies_s = {"default": 4e-3, "tuned": 1e-3, "onnxruntime": 2e-3}
    timings = tuple(Timing(name, (s,), s, s, s) for name, s in latencies_s.items())
    measured = Evaluation(
        timings=timings,
        reference="ONNX Runtime",
        outputs_equal=True,
        max_abs_error=0.0,
        tolerance=1.0,
        cores=(0,),
        published="tuned",
    )
    report = SimpleNamespace(job=SimpleNamespace(name="net"), evaluation=measured)
    demo._tell_one(cast(Result, SimpleNamespace(report=report, folder=Path.cwd() / "out")))
    words = capsys.readouterr().out.split("\n")[0].split()
    assert " ".join(words) == "net x2.00 faster than ONNX Runtime: 1.00 ms against 2.00 ms"
