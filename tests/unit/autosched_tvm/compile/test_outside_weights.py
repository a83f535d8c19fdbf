"""Weights of a network that lie behind its library."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from tvm import relax  # noqa: E402

from autosched_runtime.network import Network  # noqa: E402
from autosched_runtime.side_file import ALIGNMENT, described  # noqa: E402
from autosched_tvm.compile import network_compiler  # noqa: E402
from autosched_tvm.compile.side_file import read_side  # noqa: E402
from autosched_tvm.device.loaded_module import LoadedModule  # noqa: E402
from autosched_tvm.tensors import Tensor  # noqa: E402

pytestmark = pytest.mark.tvm
TARGET = '{"kind": "llvm", "num-cores": 1}'
X = np.arange(32, dtype="float32")


class Source:
    """A model with one input."""

    inputs, integers, about = (Tensor("x", (32,), "float32"),), False, {}

    def __init__(self, outputs: int) -> None:
        self.outputs = [f"y{number}" for number in range(outputs)]


def compiled(path: Path, weights: list[np.ndarray[Any, Any]]) -> Path:
    """Compiles a network which adds x to each weight, as float32."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((32,), "float32"))
    with builder.function("main", [x]):
        sums = [
            builder.emit(relax.op.add(x, builder.emit(relax.op.astype(relax.const(weight), "float32"))))
            for weight in weights
        ]
        builder.emit_func_output(relax.Tuple(sums))
    fused = relax.transform.FuseOps()(relax.transform.LegalizeOps()(builder.get()))
    source: Any = Source(len(weights))
    network_compiler.write_build(path, fused, source, TARGET, network_compiler.SideName("net", "default"))
    return path


def numbers(seed: int, shape: tuple[int, ...] = (32,), dtype: str = "float32") -> np.ndarray[Any, Any]:
    found = np.random.default_rng(seed).random(shape)
    return found > 0.5 if dtype == "bool" else (found * 100).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool"])
def test_weights_of_any_type_are_added(dtype: str, tmp_path: Path) -> None:
    weights = [numbers(seed, (64, 32), dtype) for seed in range(3)]
    net = compiled(tmp_path / "net", weights)
    for found in (Network(net).run([X]), LoadedModule(net).run([X])):
        for output, weight in zip(found, weights, strict=True):
            assert np.array_equal(output, X + weight.astype("float32"))
    sizes = [weight.size for weight in described(tmp_path / "net.json").weights]
    arguments = LoadedModule(net).tensors([X])
    assert sizes == [argument.numpy().nbytes for argument in arguments[1:]]
    assert [argument.numpy().shape for argument in arguments] == [(32,), *[(64, 32)] * 3]
    assert LoadedModule(net).machine()["main"](*arguments)[0].numpy()[0, 0] == np.float32(weights[0][0, 0])


def test_equal_weights_are_kept_once_and_small_ones_stay(tmp_path: Path) -> None:
    one, other, small = numbers(1, (33, 32)), numbers(2, (32,)), np.array([3], "float32")
    net = compiled(tmp_path / "net", [one, other, one.copy(), small])
    kept = described(tmp_path / "net.json").weights
    assert [weight.shape for weight in kept] == [(33, 32), (32,)]
    assert all(weight.at % ALIGNMENT == 0 for weight in kept)
    outputs = Network(net).run([X])
    assert np.array_equal(outputs[0], outputs[2])
    assert np.array_equal(outputs[3], X + 3)


def test_the_weights_begin_on_a_page_behind_the_library(tmp_path: Path) -> None:
    net = compiled(tmp_path / "net", [numbers(1, (1000, 32))])
    side, content = read_side(tmp_path / "net.json"), (tmp_path / "net.so").read_bytes()
    assert side.library is not None
    assert side.weights is not None
    assert side.library.bytes < 64_000
    (part,) = side.weights.parts
    assert part.at == -(-side.library.bytes // 4096) * 4096
    assert content[part.at :] == numbers(1, (1000, 32)).tobytes()
    assert len(content) == part.at + part.bytes
    assert Network(net).run([X])[0].shape == (1000, 32)


def test_a_network_without_weights_has_a_library_alone(tmp_path: Path) -> None:
    net = compiled(tmp_path / "net", [np.array([3], "float32")])
    side = read_side(tmp_path / "net.json")
    assert side.weights is None
    assert side.library is not None
    assert (tmp_path / "net.so").stat().st_size == side.library.bytes
    assert np.array_equal(Network(net).run([X])[0], X + 3)


def test_a_weight_that_is_an_output_is_copied(tmp_path: Path) -> None:
    weight = numbers(1, (64, 2))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((32,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(relax.Tuple([builder.emit(relax.op.add(x, x)), relax.const(weight)]))
    fused = relax.transform.FuseOps()(relax.transform.LegalizeOps()(builder.get()))
    source: Any = Source(2)
    who = network_compiler.SideName("net", "default")
    network_compiler.write_build(tmp_path / "net", fused, source, TARGET, who)
    network = Network(tmp_path / "net")
    for _ in range(3):
        found = network.run([X])[1]
        assert np.array_equal(found, weight)
        found[...] = 0


def test_the_same_network_has_the_same_weights_in_the_file(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        compiled(tmp_path / name / "net", [numbers(1, (64, 32)), numbers(2)])
        side = read_side(tmp_path / name / "net.json")
        assert side.weights is not None
        (part,) = side.weights.parts
        contents.append((part.crc32, (tmp_path / name / "net.so").read_bytes()[part.at :]))
    assert contents[0] == contents[1]
