"""Jobs on two fake GPUs, from a model to a verified module; kernels and devices that fail on the way."""

import json
from pathlib import Path

import pytest

pytest.importorskip("tvm")
pytest.importorskip("onnx")

import onnx

import fakecuda
from autosched.api.connection import Daemon
from autosched.model import Failure, JobSpec, Purpose
from integration.lab import Lab, command_line, lab
from nets import quantised, small_net, transformer

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.skipif(fakecuda.missing() is not None, reason=str(fakecuda.missing())),
]
KIND = "nvidia-h200"
QUICK = {"batch": 4, "min_repeat_ms": 0.0, "repeat": 1}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakecuda.Machine:
    """A machine with two GPUs, which the test's daemon sees."""
    made = fakecuda.Machine(tmp_path / "machine", "NVIDIA H200:90:141", "NVIDIA H200:90:141")
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


def submitted(there: Lab, file: Path, trials: int, backend: str = "autotvm") -> int:
    """Submits a job for the GPUs; returns its number."""

    async def ask(daemon: Daemon) -> int:
        sha256 = await daemon.upload(file)
        spec = JobSpec(name="net", model=sha256, target=KIND, backend=backend, options=QUICK, fresh=True, trials=trials)
        return (await daemon.submit(spec)).job

    return there.ask(ask)


def test_networks_are_tuned_on_two_gpus_at_once_and_correct_there(
    machine: fakecuda.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(transformer(), tmp_path / "transformer.onnx")
    onnx.save(quantised(), tmp_path / "quantised.onnx")
    onnx.save(small_net(), tmp_path / "net.onnx")
    folder = tmp_path / "lab"
    folder.mkdir()
    with lab(folder) as there:
        cli = command_line(there, tmp_path, monkeypatch, capsys)
        others = [submitted(there, tmp_path / f"{name}.onnx", trials=8) for name in ("transformer", "quantised")]
        code, said, err = cli(
            "tune", "net.onnx", "-t", KIND, "--backend", "autotvm", "--trials", 12, "--output", "out",
            "--option", "batch=4", "--option", "min_repeat_ms=0",
        )  # fmt: skip
        assert code == 0, err
        assert "outputs equal to ONNX Runtime" in said
        assert "   autosched evaluate " in said
        assert "autosched doctor --target cuda" in said
        for job in others:
            view = there.wait(job)
            assert view.state == "done", view
        records = [record for job in (*others, 3) for record in there.records(job)]
        measured = [record for record in records if record.unit]
        assert {record.unit for record in measured} == {"gpu-fa4e0000", "gpu-fa4e0001"}
        assert all(record.latency_s for record in measured)
        numbers = [(record.task, record.candidate) for record in there.records(3) if record.purpose is Purpose.TRIAL]
        assert len(numbers) == len(set(numbers)), "nothing is measured twice"
        side = json.loads((tmp_path / "out/net.json").read_text())
        assert (side["target"]["kind"], side["target"]["arch"], side["features"]) == ("cuda", "sm_90", [])
        assert "tuned" in side["kernels"].values()
        assert "float32 1x5" in machine.python("-m", "autosched", "run", "out/net.so").stdout
        checked = machine.python("-m", "autosched", "run", "out/net.so", "--check", "--model", "net.onnx")
        assert "outputs equal to ONNX Runtime" in checked.stdout, checked.stderr
        assert " ms" in machine.python("-m", "autosched", "evaluate", "out/net.so").stdout
    without = machine.python("-m", "autosched", "run", "out/net.so", CUDA_FAKE=str(tmp_path / "none"))
    assert "no GPU here runs code for compute capability 9.0" in without.stderr
    lines = [line.split() for line in machine.log() if line.startswith("opened")]
    opened, parents = {line[3].rstrip(",") for line in lines}, {line[-1] for line in lines}
    assert not opened & {str(there.pid), *parents}, "neither the daemon nor a fork server opens a GPU"
    used = {line.split(" device ")[1][0] for line in machine.log() if line.startswith("launch")}
    assert used == {"0", "1"}


@pytest.mark.parametrize(
    ("fault", "failure"), [("illegal_address", Failure.RUN_CRASH), ("lost", None), ("crash", Failure.RUN_CRASH)]
)
def test_a_fault_on_a_gpu_costs_no_more_than_its_candidate(
    machine: fakecuda.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, failure: Failure | None
) -> None:
    monkeypatch.setenv("CUDA_FAKE_RACES", "unchecked")
    onnx.save(small_net(), tmp_path / "net.onnx")
    folder = tmp_path / "lab"
    folder.mkdir()
    with lab(folder, "[guard]\nquarantine_s = 0.2\n") as there:
        job = submitted(there, tmp_path / "net.onnx", trials=12)
        there.wait(job, "trials", 2)
        machine.fail(0, fault)
        view = there.wait(job)
        assert view.state == "done", view
        records = there.records(job)
        assert [record.number for record in records] == list(range(len(records)))
        failures = {record.failure for record in records} - {None}
        assert failures <= {failure}, "a device that is lost costs no candidate anything"
        units = {unit.unit: unit for unit in there.ask(lambda daemon: daemon.units())}
        assert not units["gpu-fa4e0001"].drained
