"""A network for an aarch64 board: tuned, checked and run as aarch64 code, by a server in qemu. Times are
meaningless."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("tvm")
pytest.importorskip("onnx")

import numpy as np
import onnx

import arm_root
from autosched.model import JobState, Purpose
from chaos.agents import free_port
from deadlines import DEADLINE_S, until
from e2e.test_boards import submitted
from integration.lab import Lab, command_line, lab
from nets import conv_net

SOURCES = Path(__file__).parents[2]
TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -num-cores=1"
RUN = """
import json, sys
import numpy as np
from autosched_tvm.device.loaded_module import LoadedModule
from pathlib import Path
module = LoadedModule(Path(sys.argv[1]))
np.savez(sys.argv[3], *module.run(dict(np.load(sys.argv[2]))))
"""
pytestmark = [
    pytest.mark.tvm,
    pytest.mark.slow,
    pytest.mark.skipif(not arm_root.is_ready(), reason="apt-get install qemu-user lld; make arm-root"),
]


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    """A daemon at whose port an aarch64 board has registered."""
    port = free_port()
    settings = f'[boards]\nlisten = "127.0.0.1:{port}"\n[[board]]\nkind = "pi4"\ntarget = "{TARGET}"\n'
    words = ["-m", "autosched_tvm.commands.board_server", "--key", "pi4", "--tracker", f"127.0.0.1:{port}"]
    with lab(tmp_path, settings) as made, (tmp_path / "board.log").open("wb") as log:
        environment = arm_root.environment(SOURCES / "plugins", SOURCES / "runtime", SOURCES / "src")
        board = subprocess.Popen(
            arm_root.command(*words, "--port", str(free_port())), env=environment, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            until(lambda: made.boards() == ["pi4-127.0.0.1"], "the aarch64 board has registered itself")
            yield made
        finally:
            board.kill()
            board.wait(DEADLINE_S)


def test_a_network_is_tuned_checked_and_run_as_aarch64(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx.save(conv_net(), tmp_path / "net.onnx")
    job = submitted(there, tmp_path / "net.onnx", run_timeout_s=30.0)
    view = there.wait(job)
    assert view.state == JobState.DONE, view.failure
    assert not view.failed_steps, view.last_error
    trials = [record for record in there.records(job) if record.purpose is Purpose.TRIAL]
    assert len(trials) == 16
    assert sum(bool(record.latency_s) for record in trials) >= 12, [record.detail for record in trials]

    cli = command_line(there, tmp_path, monkeypatch, capsys)
    code, out, err = cli("attach", job, "-o", "out")
    assert code == 0, err
    assert "outputs equal to ONNX Runtime" in out
    assert "copy net.so and net.json to the board" in out
    kind = subprocess.run(["readelf", "-h", "out/net.so"], capture_output=True, text=True, check=True)
    assert "AArch64" in kind.stdout

    session = onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    shapes = {one.name: one.shape for one in session.get_inputs()}
    inputs = {name: np.random.default_rng(5).standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    np.savez("inputs.npz", **inputs)  # type: ignore[arg-type]
    environment = arm_root.environment(SOURCES / "plugins", SOURCES / "runtime", SOURCES / "src", arm_root.SITE)
    run = arm_root.command("-c", RUN, "out/net", "inputs.npz", "outputs.npz")
    subprocess.run(run, env=environment, check=True, timeout=DEADLINE_S)
    with np.load("outputs.npz") as found:
        for number, expected in enumerate(session.run(None, inputs)):
            np.testing.assert_allclose(found[f"arr_{number}"], expected, rtol=1e-3, atol=1e-4)
    code, out, err = cli("export", "out", "--output", "net.asn")
    assert code == 0, err
    check = arm_root.command("-m", "autosched_runtime", "check", "net.asn", "--seconds", "0")
    done = subprocess.run(check, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as verified (2 samples)" in done.stdout
    assert json.loads(Path("out/net.json").read_text())["target"]["mtriple"] == "aarch64-linux-gnu"
    assert {record.unit for record in trials} == {"pi4-127.0.0.1"}
