"""The interface of onnxruntime's sessions: each program here gives the same with onnxruntime and with the runtime."""

import hashlib
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import autosched_runtime  # noqa: E402
from autosched.export import Form, export  # noqa: E402
from autosched_runtime import session as session_module  # noqa: E402
from autosched_runtime import session_options  # noqa: E402
from autosched_runtime.errors import FileMissing, InvalidInput, NetworkError  # noqa: E402
from autosched_runtime.networks_by_model import VARIABLE, network_of  # noqa: E402
from deadlines import DEADLINE_S  # noqa: E402
from unit.autosched_runtime.small_networks import X, tuned_for, written  # noqa: E402

pytestmark = pytest.mark.tvm
Y = X[::-1].copy()
PAGE = Path(__file__).parents[3] / "docs/deploying.md"


def model_of(path: Path) -> Path:
    """Writes an ONNX model of x + x, which says something about itself."""
    value = partial_value("x")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "x"], ["y"])], "twice", [value], [
        partial_value("y")], doc_string="a graph")  # fmt: skip
    model = onnx.helper.make_model(
        graph, producer_name="a test", opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8, domain="org.x",
        doc_string="a model", model_version=7,
    )  # fmt: skip
    onnx.helper.set_model_props(model, {"letters": "a,b", "stride": "32"})
    onnx.save(model, path)
    return path


def partial_value(name: str) -> Any:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [64])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its compiled network beside it."""
    folder = tmp_path_factory.mktemp("model")
    path = model_of(folder / "net.onnx")
    side = tuned_for(written(folder / "net.so"), 1).with_suffix(".json")
    told = json.loads(side.read_text())
    told["outputs"][0]["name"] = "y"
    told["model"] = hashlib.sha256(path.read_bytes()).hexdigest()
    told["about"] = {
        "producer_name": "a test", "graph_name": "twice", "domain": "org.x", "description": "a model",
        "graph_description": "a graph", "version": 7, "metadata": {"letters": "a,b", "stride": "32"},
    }  # fmt: skip
    side.write_text(json.dumps(told))
    return path


Program = Callable[[Any, Any], Any]
"""A function of the module and the model's path."""


def runs(ort: Any, model: Any) -> Any:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    return [session.run(names, {"x": X}) for names in (None, [], ["y"], ["y", "y"])]


def describes(ort: Any, model: Any) -> Any:
    session = ort.InferenceSession(model)
    arguments = [(one.name, one.shape, one.type) for one in (*session.get_inputs(), *session.get_outputs())]
    about = session.get_modelmeta()
    names = ("producer_name", "graph_name", "domain", "description", "graph_description", "version")
    return arguments, [getattr(about, name) for name in names], about.custom_metadata_map, session.get_providers()


def has_options(ort: Any, model: Any) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level, options.enable_cpu_mem_arena = 3, False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(str(model), sess_options=options, providers=["CPUExecutionProvider"])
    kept = session.get_session_options()
    told = kept.get_session_config_entry("session.intra_op.allow_spinning")
    return session.run(["y"], {"x": X}, ort.RunOptions()), kept.intra_op_num_threads, told


def from_bytes(ort: Any, model: Any) -> Any:
    return ort.InferenceSession(Path(model).read_bytes()).run(None, {"x": Y})


def later(ort: Any, model: Any) -> Any:
    found: list[Any] = []
    done = threading.Event()

    def take(results: Any, data: Any, error: str) -> None:
        found.extend((list(results), data, error))
        done.set()

    ort.InferenceSession(model).run_async(None, {"x": X}, take, "mine")
    assert done.wait(DEADLINE_S)
    return found


def values(ort: Any, model: Any) -> Any:
    session = ort.InferenceSession(model)
    value = ort.OrtValue.ortvalue_from_numpy(X)
    empty = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64)
    changed = ort.OrtValue.ortvalue_from_numpy(X.copy())
    changed.update_inplace(Y)
    facts = [(one.shape(), one.data_type(), one.element_type(), one.tensor_size_in_bytes(), one.device_name(),
              one.is_tensor(), one.has_value()) for one in (value, empty)]  # fmt: skip
    (result,) = session.run_with_ort_values(["y"], {"x": changed})
    return session.run(None, {"x": value}), facts, result.numpy(), np.from_dlpack(value)


def binds(ort: Any, model: Any) -> Any:
    session = ort.InferenceSession(model)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    first = binding.copy_outputs_to_cpu()
    place, result = Y.copy(), np.zeros(64, np.float32)
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    binding.bind_input("x", "cpu", 0, np.float32, place.shape, place.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, result.shape, result.ctypes.data)
    session.run_with_iobinding(binding)
    kept = ort.OrtValue.ortvalue_from_numpy(np.zeros(64, np.float32))
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_ortvalue_output("y", kept)
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    return first, result, kept.numpy(), [one.numpy() for one in binding.get_outputs()]


PROGRAMS: tuple[Program, ...] = (runs, describes, has_options, from_bytes, later, values, binds)


def plain(value: Any) -> Any:
    """Returns a result in which arrays are bytes, and lists are tuples."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_does_the_same_with_both(program: Program, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(model.parent))
    monkeypatch.setattr(session_module, "_of_onnxruntime", lambda *_: pytest.fail("it was not compiled"))
    assert plain(program(autosched_runtime, str(model))) == plain(program(onnxruntime, str(model)))


def bound(session: Any, output: str) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output(output)
    session.run_with_iobinding(binding)


def test_the_page_for_users_works(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(model.read_bytes())
    Path("net-tuned").mkdir()
    for suffix in (".so", ".json"):
        Path("net-tuned", f"net{suffix}").write_bytes(model.with_suffix(suffix).read_bytes())
    export([Path("net-tuned/net.so")], Form.FILE)
    ran = 0
    for code in re.findall(r"^```python\n(.+?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        if "autosched_runtime" in code:
            names = {"x": X}
            exec(compile(code, PAGE.name, "exec"), names)
            assert np.array_equal(names["outputs"][0], X + X)
            ran += 1
    assert ran == 2


WRONG: dict[str, Program] = {
    "an unknown output": lambda session, ort: session.run(["z"], {"x": X}),
    "an unknown input": lambda session, ort: session.run(None, {"x": X, "z": X}),
    "no input": lambda session, ort: session.run(None, {}),
    "another type": lambda session, ort: session.run(None, {"x": X.astype("float64")}),
    "another shape": lambda session, ort: session.run(None, {"x": X[:5]}),
    "an unknown output of a binding": lambda session, ort: bound(session, "z"),
    "another shape of a value": lambda session, ort: ort.OrtValue.ortvalue_from_numpy(X).update_inplace(X[:5]),
}


@pytest.mark.parametrize("program", WRONG.values(), ids=WRONG)
def test_what_onnxruntime_refuses_is_refused_in_words(program: Program, model: Path) -> None:
    for ort in (onnxruntime, autosched_runtime):
        with pytest.raises(Exception) as refused:  # noqa: PT011
            program(ort.InferenceSession(str(model)), ort)
    assert isinstance(refused.value, InvalidInput)
    assert len(str(refused.value)) > 20


def test_an_error_of_a_later_run_comes_at_once(model: Path) -> None:
    session = autosched_runtime.InferenceSession(str(model))
    with pytest.raises(InvalidInput, match="no output 'z'"):
        session.run_async(["z"], {"x": X}, lambda *_: pytest.fail("it was called"), None)
    with pytest.raises(InvalidInput, match="it takes 64 numbers"):
        session.run_async(None, {"x": X[:3]}, lambda *_: pytest.fail("it was called"), None)


def test_a_bound_output_must_fit(model: Path) -> None:
    session = autosched_runtime.InferenceSession(str(model))
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    small = np.zeros(5, np.float32)
    binding.bind_output("y", "cpu", 0, np.float32, small.shape, small.ctypes.data)
    with pytest.raises(
        InvalidInput, match=r"output 'y' is float32 \(64,\); the memory that it is bound to is float32 \(5,\)"
    ):
        session.run_with_iobinding(binding)
    with pytest.raises(InvalidInput, match="device 'cuda': a compiled network runs on the CPU"):
        binding.bind_output("y", "cuda")


def test_an_output_may_be_bound_to_the_memory_of_an_input(model: Path) -> None:
    session = autosched_runtime.InferenceSession(str(model))
    memory = X.copy()
    expected = session.run(None, {"x": X})[0]
    binding = session.io_binding()
    binding.bind_cpu_input("x", memory)
    binding.bind_output("y", "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
    session.run_with_iobinding(binding)
    assert np.array_equal(memory, expected)


def test_the_network_is_found_by_its_model(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = model.with_suffix(".so")
    assert network_of(model) == network
    assert network_of(network) == network
    assert network_of(model.parent) == network
    copy = tmp_path / "other.onnx"
    copy.write_bytes(model.read_bytes())
    with pytest.raises(FileMissing, match=r"no compiled network of .*other\.onnx"):
        network_of(copy)
    tuned = tmp_path / "other-tuned"
    tuned.mkdir()
    for suffix in (".so", ".json"):
        (tuned / f"any{suffix}").write_bytes(model.with_suffix(suffix).read_bytes())
    assert network_of(copy) == tuned / "any.so"
    monkeypatch.setenv(VARIABLE, f"{tmp_path / 'none'}:{tmp_path}")
    assert network_of(copy.read_bytes()) == tuned / "any.so"
    with pytest.raises(FileMissing, match="no compiled network of this model"):
        network_of(b"another")


def test_a_network_of_another_model_beside_it_is_not_taken(model: Path, tmp_path: Path) -> None:
    for suffix in (".so", ".json"):
        (tmp_path / f"net{suffix}").write_bytes(model.with_suffix(suffix).read_bytes())
    (tmp_path / "net.onnx").write_bytes(b"another model")
    with pytest.raises(FileMissing):
        network_of(tmp_path / "net.onnx")


def test_a_model_without_a_network_goes_to_onnxruntime(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(tmp_path / "net.onnx")
    options = autosched_runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = autosched_runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    assert isinstance(session, onnxruntime.InferenceSession)
    assert session.get_session_options().intra_op_num_threads == 1
    assert np.array_equal(session.run(None, {"x": X})[0], X + X)
    assert "ONNX Runtime runs the model" in caplog.text


def test_without_onnxruntime_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(FileMissing, match="Make one with: autosched tune"):
        autosched_runtime.InferenceSession(str(model_of(tmp_path / "net.onnx")))
    with pytest.raises(FileMissing, match="there is no file"):
        autosched_runtime.InferenceSession(str(tmp_path / "none.onnx"))
    with pytest.raises(NetworkError, match="holds 0 compiled networks"):
        autosched_runtime.InferenceSession(str(tmp_path))


def test_names_that_are_not_there_are_told() -> None:
    with pytest.raises(AttributeError, match="did you mean 'InferenceSession'"):
        _ = autosched_runtime.InferenceSessions  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"'SparseTensor'.*OrtValue"):
        _ = autosched_runtime.SparseTensor  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no option 'threads'"):
        autosched_runtime.SessionOptions().threads = 3  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="intra_op_num_threads is -1"):
        autosched_runtime.SessionOptions().intra_op_num_threads = -1


def test_names_from_the_inside_of_onnxruntime_are_there(model: Path) -> None:
    for ort in (onnxruntime, autosched_runtime):
        assert "CPUExecutionProvider" in ort.capi._pybind_state.get_available_providers()
        with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument):
            ort.InferenceSession(str(model)).run(None, {"x": X[:3]})


def test_what_has_no_effect_is_told_once(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    session_options.lost.cache_clear()
    options = autosched_runtime.SessionOptions()
    options.enable_profiling = True
    for _ in range(3):
        autosched_runtime.InferenceSession(str(model), options, providers=["CUDAExecutionProvider"])
    assert [record.args for record in caplog.records] == [
        ("SessionOptions.enable_profiling",), ("providers=['CUDAExecutionProvider']",)
    ]  # fmt: skip


def test_more_threads_than_cores_are_as_many_as_cores(model: Path) -> None:
    options = autosched_runtime.SessionOptions()
    options.intra_op_num_threads = 10_000
    assert np.array_equal(autosched_runtime.InferenceSession(str(model), options).run(None, {"x": X})[0], X + X)
    with pytest.raises(InvalidInput, match="threads is 10000: at least 1"):
        autosched_runtime.load(model.with_suffix(".so"), threads=10_000)
