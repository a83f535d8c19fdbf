import json
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

pytest.importorskip("tvm")

from autosched_tvm.compile import kept_network, model_sources, network_compiler, network_import
from autosched_tvm.worker_messages import Compilation, Ways
from nets import small_net

pytestmark = pytest.mark.tvm

TARGET = json.dumps({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})
LAYOUT = "nchwc"


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    kept_network._kept.clear()
    yield
    kept_network._kept.clear()


def take_in(folder: Path, *, keep: bool) -> Compilation:
    onnx.save(small_net(), folder / "net.onnx")
    prepared = str(folder / "prepared.onnx")
    network_import.take_in(str(folder / "net.onnx"), {}, TARGET, prepared, str(folder), Ways(LAYOUT, True), keep)
    return Compilation(prepared, TARGET, str(folder), "net", LAYOUT, winograd=True, untuned=False)


def code(folder: Path) -> bytes:
    return (folder / "tuned.so").read_bytes()


def test_a_kept_network_compiles_to_the_same_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network_compiler.compile_network(take_in(tmp_path, keep=False), [])
    expected = code(tmp_path)
    compilation = take_in(tmp_path, keep=True)
    with monkeypatch.context() as context:
        context.setattr(model_sources, "load", lambda _path: pytest.fail("the model was loaded again"))
        network_compiler.compile_network(compilation, [])
    assert code(tmp_path) == expected
    assert kept_network.take(compilation.model, TARGET, LAYOUT, winograd=True) is None, "its memory is free again"
    network_compiler.compile_network(compilation, [])
    assert code(tmp_path) == expected


def test_only_the_same_network_in_the_same_layout_is_taken(tmp_path: Path) -> None:
    model = take_in(tmp_path, keep=True).model
    for asked in [("other.onnx", TARGET, LAYOUT, True), (model, "{}", LAYOUT, True), (model, TARGET, "auto", True)]:
        assert kept_network.take(*asked[:3], winograd=asked[3]) is None
    assert kept_network.take(model, TARGET, LAYOUT, winograd=False) is None
    assert kept_network.take(model, TARGET, LAYOUT, winograd=True) is not None


def test_the_network_before_is_dropped(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = take_in(tmp_path / "one", keep=True)
    take_in(tmp_path / "two", keep=True)
    assert kept_network.take(first.model, TARGET, LAYOUT, winograd=True) is None
