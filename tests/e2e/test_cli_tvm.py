"""Networks through the command line and the Python API, with the real compiler; and the errors for invalid models."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.lab import Lab, Said, command_line, lab

pytest.importorskip("tvm")
pytest.importorskip("onnx")

import numpy as np
import onnx

import autosched
import autosched_runtime
from autosched.cli.command_table import run
from autosched.errors import RequestError
from autosched_runtime.__main__ import main as runtime_command
from autosched_runtime.cpu_features import HIDDEN
from autosched_tvm.compile import targets
from autosched_tvm.compile.side_file import read_side
from nets import conv_net, model, small_net

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def cli(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Runs a command in an empty folder; returns exit code, stdout, stderr."""
    return command_line(there, tmp_path, monkeypatch, capsys)


def test_a_network_is_tuned_checked_run_and_measured(cli: Callable[..., Said], tmp_path: Path) -> None:
    onnx.save(small_net(), "small.onnx")
    code, out, err = cli("tune", "small.onnx", "--trials", 12, "--seed", 1)
    assert code == 0, err
    assert "outputs equal to" in out
    assert "untuned " in out
    assert " than ONNX Runtime" in out or "as fast as ONNX Runtime" in out
    assert "ONNX Runtime" in err, "it is shown what is to be beaten"
    module = tmp_path / "small-tuned/small.so"
    assert module.stat().st_size > 1000

    np.save("x.npy", np.ones((1, 3, 12, 12), "float32"))
    code, out, err = cli("run", module, "--input", "x.npy", "--output", "outputs")
    assert code == 0, err
    first = np.load("outputs/y.npy")
    assert first.shape == (1, 5)
    loaded = autosched.load_module(module)
    np.testing.assert_allclose(loaded.run(np.load("x.npy"))[0], first, rtol=1e-5)
    np.testing.assert_allclose(loaded.run({"x": np.load("x.npy")})[0], reference("small.onnx"), rtol=1e-3, atol=1e-5)
    with pytest.raises(RequestError, match="no input 'z'"):
        loaded.run({"z": np.load("x.npy")})

    onnx.save(conv_net(), "other.onnx")
    assert cli("run", module, "--check", "--model", "other.onnx")[0] == 2
    assert cli("run", module, "--check", "--output", "outputs")[0] == 2

    code, out, err = cli("evaluate", module, "--seconds", 0.2)
    assert code == 0, err
    assert "95 % of" in out
    assert "evaluate-small" in cli("jobs")[1], "it was measured under a lease"
    code, _, err = cli("run", module, "--input", "none.npy")
    assert code == 2
    assert "none.npy" in err


def test_without_a_search_only_the_build_of_the_user_is_made(cli: Callable[..., Said], tmp_path: Path) -> None:
    onnx.save(small_net(), "quick.onnx")
    code, out, err = cli("tune", "quick.onnx", "--zero-shot", "--fresh")
    assert code == 0, err
    assert "outputs equal to ONNX Runtime" in out
    assert "ONNX Runtime " in out
    assert "untuned" not in out
    assert (tmp_path / "quick-tuned/quick.so").exists()


def test_several_shapes_become_one_file(cli: Callable[..., Said], tmp_path: Path) -> None:
    onnx.save(small_net(batch="batch"), "small.onnx")
    code, out, err = cli("tune", "small.onnx", "--zero-shot", "--shape", "x=1,3,12,12", "--shape", "x=4,3,12,12")
    assert code == 0, err
    assert "small.asn" in out
    session = autosched_runtime.InferenceSession(tmp_path / "small-tuned/small.asn")
    theirs = pytest.importorskip("onnxruntime").InferenceSession("small.onnx")
    for batch in (1, 4):
        feed = {"x": np.random.default_rng(batch).random((batch, 3, 12, 12)).astype("float32")}
        np.testing.assert_allclose(session.run(None, feed)[0], theirs.run(None, feed)[0], rtol=1e-3, atol=1e-5)
    assert runtime_command(["check", str(tmp_path / "small-tuned/small.asn"), "--seconds", "0"]) == 0


def test_a_gate_is_open_for_the_same_network(cli: Callable[..., Said], tmp_path: Path) -> None:
    onnx.save(small_net(), "small.onnx")
    assert cli("tune", "small.onnx", "--zero-shot")[0] == 0
    code, out, err = cli("gate", "small.onnx", "--against", "small-tuned", "--save", "kept")
    assert code == 0, err
    assert "the code is equal, and nothing was measured" in out
    assert (tmp_path / "kept/small.so").exists()
    onnx.save(small_net(batch=8), "larger.onnx")
    assert cli("tune", "larger.onnx", "--zero-shot", "--fresh")[0] == 0
    assert cli("gate", "small.onnx", "--against", "larger-tuned", "--seconds", 0.2)[0] == 2


def reference(path: str) -> Any:
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    return session.run(None, {"x": np.load("x.npy")})[0]


def test_a_network_is_tuned_from_python_in_one_line(there: Lab, tmp_path: Path) -> None:
    net = conv_net()
    onnx.save(net, tmp_path / "conv.onnx")
    shape = [extent.dim_value for extent in net.graph.input[0].type.tensor_type.shape.dim]
    tuned = autosched.load_model(tmp_path / "conv.onnx").tune(trials=8, daemon=there.address)
    module = tuned.compile().save(tmp_path / "saved")
    assert tuned.evaluation is not None
    assert tuned.evaluation.outputs_equal
    assert list(module.run(np.zeros(shape, "float32"))[0].shape) == shape
    assert module.evaluate(daemon=there.address, budget_s=0.2).median_s > 0

    async def again() -> None:
        module = await (await tuned.compile_async()).save_async(tmp_path / "again")
        assert list((await module.run_async(np.zeros(shape, "float32")))[0].shape) == shape
        assert (await module.evaluate_async(daemon=there.address, budget_s=0.2)).median_s > 0

    asyncio.run(again())


def test_a_model_is_checked_without_a_job(cli: Callable[..., Said]) -> None:
    onnx.save(small_net(), "small.onnx")
    code, out, err = cli("model", "check", "small.onnx")
    assert code == 0, err
    assert "input x: float32 1x3x12x12" in out
    assert "autosched tune small.onnx" in err


def test_a_detector_is_cut_before_its_post_processing(cli: Callable[..., Said]) -> None:
    node = onnx.helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Reshape", ["c", "shape"], ["boxes"]),
        node("Slice", ["boxes", "from", "to", "axis"], ["one"]), node("Transpose", ["one"], ["scores"], perm=[0, 2, 1]),
        node("NonMaxSuppression", ["boxes", "scores"], ["y"], name="nms"),
    ]  # fmt: skip
    weights = {
        "w": np.full((4, 3, 3, 3), 0.1, "float32"), "shape": np.array([1, -1, 4]), "from": np.array([0]),
        "to": np.array([1]), "axis": np.array([2]),
    }  # fmt: skip
    net = model(nodes, {"x": ["n", 3, 16, 16]}, [], weights)
    net.graph.output.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None))
    onnx.save(net, "detector.onnx")
    code, _, err = cli("tune", "detector.onnx", "--trials", 4)
    assert code == 6
    assert "autosched model cut FILE writes the part up to 'boxes', 'scores'" in err
    code, out, err = cli("model", "cut", "detector.onnx")
    assert code == 0, err
    assert "takes x; gives boxes, scores" in out
    assert "ok  both parts give what the whole network gives" in out
    code, out, err = cli("tune", "detector.head.onnx", "--trials", 4)
    assert code == 0, err


def rejected() -> dict[str, tuple[Callable[[], None], str]]:
    """Function that makes the file, and the expected message, by file name."""
    node = onnx.helper.make_node

    def save(name: str, *nodes: Any, batch: int | str = 1, weights: dict[str, Any] | None = None) -> None:
        onnx.save(model(list(nodes), {"x": [batch, 3, 8, 8]}, ["y"], weights or {}), name)

    def truncated() -> None:
        onnx.save(conv_net(), "whole.onnx")
        Path("truncated.onnx").write_bytes(Path("whole.onnx").read_bytes()[:1500])

    return {
        "truncated.onnx": (truncated, "is truncated"),
        "unsupported.onnx": (
            lambda: save("unsupported.onnx", node("NonMaxSuppression", ["x"], ["y"], name="nms")),
            "nms",
        ),
        "dynamic.onnx": (lambda: onnx.save(small_net("n", "h"), "dynamic.onnx"), "--shape x=1,3,"),
    }


@pytest.mark.parametrize("name", ["truncated.onnx", "unsupported.onnx", "dynamic.onnx"])
def test_a_model_that_cannot_be_tuned_is_refused_with_the_reason(cli: Callable[..., Said], name: str) -> None:
    make, wanted = rejected()[name]
    make()
    code, out, err = cli("tune", name, "--trials", 4)
    assert (code, out) == (6, "")
    assert wanted in err
    code, out, err = cli("model", "check", name)
    assert (code, out) == (1, "")
    assert wanted in err
    assert cli("status")[0] == 0, "the daemon is unharmed"


def test_a_dynamic_input_gets_the_given_shape(cli: Callable[..., Said]) -> None:
    onnx.save(small_net("n"), "dynamic.onnx")
    code, _, err = cli("tune", "dynamic.onnx", "--shape", "x=2,3,12,12", "--trials", 4)
    assert code == 0, err
    assert "2x3x12x12" in cli("model", "check", "dynamic.onnx", "--shape", "x=2,3,12,12")[1]


@pytest.mark.parametrize("target", ["nvidia/none", '{"kind": "zzz"}', "llvm -mcpu=none"])
def test_an_unknown_target_is_refused(cli: Callable[..., Said], target: str) -> None:
    onnx.save(conv_net(), "conv.onnx")
    code, out, err = cli("tune", "conv.onnx", "--trials", 4, "--target", target)
    assert code in (2, 6)
    assert out == ""
    assert "Try" in err or "Near" in err


def test_a_machine_that_hides_features_of_its_cpu_tunes_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = [name for name in ("avx512f", "avx2", "dotprod") if targets.granted().get(name)]
    monkeypatch.setenv(HIDDEN, ",".join(hidden))
    onnx.save(small_net(), tmp_path / "small.onnx")
    (tmp_path / "lab").mkdir()
    with lab(tmp_path / "lab") as there:
        cli = command_line(there, tmp_path, monkeypatch, capsys)
        code, out, err = cli("tune", "small.onnx", "--trials", 8, "--seed", 1)
        assert code == 0, err
        assert "outputs equal to ONNX Runtime" in out
        assert all(record.failure is None for record in there.records(1))
    used = targets.features(read_side(tmp_path / "small-tuned/small.json").target)
    assert hidden, "this CPU has one of them"
    assert not used & set(hidden)


def test_a_target_that_this_machine_cannot_run_is_refused_at_once(cli: Callable[..., Said], there: Lab) -> None:
    """No CPU has the features of both makers."""
    other = "bdver4" if targets.granted()["sse4a"] is False else "sapphirerapids"
    onnx.save(small_net(), "small.onnx")
    code, _, err = cli("tune", "small.onnx", "--trials", 8, "--target", f"llvm -mcpu={other}")
    assert code != 0
    assert f"this machine's CPU does not offer what the target {other!r} needs" in err
    assert "Use --target '{" in err
    assert "or --target auto" in err
    assert not [unit for unit in there.ask(lambda daemon: daemon.units()) if unit.drained]


def test_a_missing_compiler_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(conv_net(), "conv.onnx")
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lab").mkdir()
    with lab(tmp_path / "lab") as there:
        code = run(["--host", there.address, "tune", "conv.onnx", "--trials", "4"])
    err = capsys.readouterr().err
    assert code == 6
    assert "apt-get install gcc" in err
