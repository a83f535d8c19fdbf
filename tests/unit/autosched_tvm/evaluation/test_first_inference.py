"""The start of engines in processes of their own."""

from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")

from autosched_tvm.evaluation import first_inference
from autosched_tvm.evaluation.first_inference import ONNXRUNTIME, OURS, NotMeasured
from deadlines import DEADLINE_S
from unit.autosched_runtime.small_networks import X, of_weights

pytestmark = pytest.mark.tvm


def added(path: Path) -> Path:
    """Writes the ONNX file of x + x."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [64]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "x"], ["y"])], "add", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def test_each_engine_starts_in_a_process_of_its_own(tmp_path: Path) -> None:
    files = {OURS: of_weights(tmp_path / "net.so", 40), ONNXRUNTIME: added(tmp_path / "net.onnx")}
    ours, other = first_inference.measured(files, {"x": X}, (), DEADLINE_S)
    assert (ours.engine, other.engine) == (OURS, ONNXRUNTIME)
    assert all(0 < one.load_s < DEADLINE_S and 0 < one.first_s < DEADLINE_S for one in (ours, other))
    assert 60 << 20 < ours.peak_bytes < 200 << 20  # 40 MiB of weights, Python and NumPy
    ballast = np.ones(100 << 20, "uint8")  # of this process, which does not count
    (alone,) = first_inference.measured({OURS: files[OURS]}, {"x": X}, (), DEADLINE_S)
    assert abs(alone.peak_bytes - ours.peak_bytes) < ballast.nbytes / 2


def test_an_engine_that_fails_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match=r"start of autosched-runtime was not measured: it failed: .*there is no"):
        first_inference.measured({OURS: tmp_path / "net.so"}, {"x": X}, (), DEADLINE_S)
    (tmp_path / "net.onnx").write_bytes(b"no model")
    with pytest.raises(NotMeasured, match="start of onnxruntime was not measured: it failed"):
        first_inference.measured({ONNXRUNTIME: tmp_path / "net.onnx"}, {"x": X}, (), DEADLINE_S)
    with pytest.raises(NotMeasured, match="it took more than 0 s"):
        first_inference.measured({OURS: of_weights(tmp_path / "net.so", 1)}, {"x": X}, (), 0.01)
