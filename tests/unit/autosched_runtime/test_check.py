"""A network is checked where it runs."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

from autosched.export import Form, card, export
from autosched_runtime.__main__ import main
from autosched_runtime.check import Checked, check
from autosched_runtime.cpu_model import cpu_model
from autosched_runtime.errors import NetworkError
from deadlines import DEADLINE_S
from unit.autosched_runtime.small_networks import of_weights
from unit.export.packed import tuned

pytestmark = pytest.mark.tvm
PROMISE = {"median_s": 1.0, "cpu": cpu_model(), "cores": 1, "rival": "ONNX Runtime", "ratio": 0.61}
FOUND = Checked(
    network="net.asn", inputs="'x' (float32 64)", cpu="a CPU", threads=1, samples=2,
    differences=(), latency_s=1.02e-3, promised_s=1e-3,
    promised_ratio=0.61, rival="ONNX Runtime", rival_s=None, reasons=(),
)  # fmt: skip


def packed(folder: Path, promise: dict[str, Any] | None, **more: Any) -> Path:
    """A network in one file with a promise; `more`: changes of its side file."""
    path = tuned(folder)
    side = json.loads(path.with_suffix(".json").read_text()) | more
    path.with_suffix(".json").write_text(json.dumps(side))
    (folder / "report.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(card, "promise", lambda _report: promise)
        return export([path], Form.FILE)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({}, 0, ["as verified (2 samples)", "1.02 ms: as promised (0.61 of ONNX Runtime's time, 1 ms)"]),
        ({"promised_s": None, "promised_ratio": None}, 0, ["nothing was promised"]),
        ({"promised_ratio": None}, 0, ["as promised (1 ms)"]),
        ({"latency_s": 0.5e-3}, 0, ["500 us: faster than promised"]),
        ({"latency_s": 1.3e-3}, 3, ["1.30 times what was promised", "because   no reason is known"]),
        (
            {"latency_s": 1.3e-3, "reasons": ("other programs use 1.0 cores", "it is hot")},
            3,
            ["because   other programs use 1.0 cores; it is hot"],
        ),
        ({"latency_s": 1.3e-3, "rival_s": 2.1e-3}, 0, ["as promised", "takes 2.1 ms here: 0.62 of its time"]),
        ({"latency_s": 1.3e-3, "rival_s": 1.3e-3}, 3, ["1.64 times what was promised"]),
        ({"latency_s": None}, 0, ["as verified"]),
        ({"samples": 0}, 0, ["not checked: the network has no samples"]),
        ({"differences": ("output 'y' of sample 0 by 1, allowed 0.1",)}, 1, ["outputs   DIFFER", "allowed 0.1"]),
        ({"differences": ("y",), "latency_s": 9.0}, 1, ["DIFFER"]),
    ],
)
def test_the_result_is_a_code_and_words(change: dict[str, Any], code: int, words: list[str]) -> None:
    found = replace(FOUND, **change)
    text = "\n".join(found.lines())
    assert found.code == code
    for wanted in words:
        assert wanted in text
    assert json.loads(json.dumps(found.json()))["code"] == code


def test_a_right_network_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(packed(tmp_path, PROMISE)), "--seconds", "0.1"]) == 0
    said = capsys.readouterr().out
    assert "as verified (2 samples)" in said
    assert "faster than promised (0.61 of ONNX Runtime's time, 1 s)" in said


def test_a_network_slower_than_promised_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packed(tmp_path, {**PROMISE, "median_s": 1e-9, "cpu": "another CPU", "cores": 64})
    assert main(["check", str(path), "--seconds", "0.1", "--threads", "1"]) == 3
    said = capsys.readouterr().out
    assert "times what was promised" in said
    assert "the promise is of another CPU: another CPU" in said
    assert "it was measured with 64 threads, not 1" in said


def test_a_network_whose_outputs_differ_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tuned(tmp_path)
    samples = dict(np.load(tmp_path / "net.samples.npz"))
    samples["output/1/x"] = samples["output/1/x"] + 0.5
    np.savez(tmp_path / "net.samples.npz", **samples)
    assert main(["check", str(path), "--seconds", "0"]) == 1
    said = capsys.readouterr().out
    assert "output 'x' of sample 1 by 0.5, allowed 1e-06" in said
    assert "latency" not in said


def test_json_is_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packed(tmp_path, PROMISE)
    assert main(["check", str(path), "--seconds", "0.1", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["checked"]
    assert (found["samples"], found["differences"], found["code"], found["promised_ratio"]) == (2, [], 0, 0.61)
    assert 0 < found["latency_s"] < 1
    assert main(["check", str(tmp_path / "none.asn"), "--json"]) == 4
    assert "there is no network" in json.loads(capsys.readouterr().out)["error"]


def test_networks_that_cannot_run_here_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "none.so")]) == 4
    assert "there is no compiled module" in capsys.readouterr().err
    foreign = packed(tmp_path, None, features=["amx-fp16"])
    if os.uname().machine == "x86_64":
        assert main(["check", str(foreign)]) == 4
        assert "was compiled for a CPU with amx-fp16" in capsys.readouterr().err


def test_a_network_without_samples_or_promise_is_measured(tmp_path: Path) -> None:
    (found,) = check(of_weights(tmp_path / "net.so", 1), seconds=0.05)
    assert (found.samples, found.promised_s, found.code) == (0, None, 0)
    assert found.latency_s is not None


def test_the_model_runs_in_turns_where_it_is(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    tensor = [onnx.helper.make_tensor_value_info(name, 1, [64]) for name in "xy"]
    one = onnx.helper.make_node("Constant", [], ["c"], value_float=1.0)
    graph = onnx.helper.make_graph([one, onnx.helper.make_node("Add", ["x", "c"], ["y"])], "g", tensor[:1], tensor[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    path = packed(tmp_path, {**PROMISE, "ratio": 1e6})
    (found,) = check(path, seconds=0.1, model=tmp_path / "net.onnx")
    assert found.ratio is not None
    assert found.code == 0
    assert "ONNX Runtime takes" in "\n".join(found.lines())
    with pytest.raises(NetworkError, match="there is no model"):
        check(path, seconds=0.1, model=tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(NetworkError, match="ONNX Runtime cannot run"):
        check(path, seconds=0.1, model=tmp_path / "bad.onnx")


def test_it_is_a_command_of_python(tmp_path: Path) -> None:
    path = packed(tmp_path, PROMISE)
    words = [sys.executable, "-m", "autosched_runtime", "check", path, "--seconds", "0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert "as verified" in done.stdout
    for wrong in (["--seconds", "-1"], ["--seconds", "x"], []):
        asked = [sys.executable, "-m", "autosched_runtime", "check", *([path, *wrong] if wrong else [])]
        assert subprocess.run(asked, capture_output=True, timeout=DEADLINE_S, check=False).returncode == 2
