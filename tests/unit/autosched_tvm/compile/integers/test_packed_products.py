"""A quantised network whose products are kept in 8-bit integers, compiled, beside ONNX Runtime."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

import this_cpu  # noqa: E402
from autosched_runtime.network import Network  # noqa: E402
from autosched_tvm.compile import model_sources, network_compiler, network_import, onnx_import  # noqa: E402
from autosched_tvm.compile.candidate_build import load_target  # noqa: E402
from autosched_tvm.compile.integers import dot_instructions  # noqa: E402
from autosched_tvm.compile.side_file import side_of  # noqa: E402
from autosched_tvm.worker_messages import Ways  # noqa: E402
from quantising import PRODUCTS_SHAPE, run, two_products  # noqa: E402

HERE = json.dumps(this_cpu.attributes(num_cores=1))
OLD = json.dumps({"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 1})
WIDE = json.dumps({"kind": "llvm", "mcpu": "haswell", "num-cores": 1})
NEW = json.dumps({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 1})
ARM = json.dumps({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "num-cores": 1})
RANDOM = np.random.default_rng(0)


def products(model: Any, target: str, folder: Path) -> int:
    """Returns the number of 8-bit products among the kernels of a network."""
    onnx.save(model, folder / "net.onnx")
    taken = network_import.take_in(
        str(folder / "net.onnx"), {}, target, str(folder / "prepared.onnx"), str(folder), Ways(integers=True)
    )
    source = model_sources.load(folder / "prepared.onnx")
    fused = onnx_import.fused(source.cleaned(load_target(target)), load_target(target))
    assert source.integers == (sum("int8_product" in info.name for info in taken.tasks) > 0)
    return sum("int8_product" in variable.name_hint for variable in fused.get_global_vars())


@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
def test_a_compiled_network_is_within_a_step_of_onnx_runtime(signed: bool, tmp_path: Path) -> None:
    if dot_instructions.of_target(load_target(HERE)) is None:
        pytest.skip("this machine has no dot instruction")
    model = two_products(signed)
    assert products(model, HERE, tmp_path) == 2
    source = model_sources.load(tmp_path / "prepared.onnx")
    fused = onnx_import.fused(source.cleaned(load_target(HERE)), load_target(HERE))
    who = network_compiler.SideName("net", "tuned")
    network_compiler.write_build(tmp_path / "tuned", fused, source, HERE, who)
    assert side_of(tmp_path / "tuned").integers
    data = RANDOM.standard_normal(PRODUCTS_SHAPE).astype("float32")
    (found,) = Network(tmp_path / "tuned.so").run([data])
    (expected,) = run(model, {"x": data})
    step = 0.1 * 127 * 0.02  # one level of the second product's data, times the largest weight
    assert np.abs(found - expected).max() <= step
    assert np.mean(np.abs(found - expected) > 1e-4) <= 0.02, "but for levels between which a number lies in the middle"


@pytest.mark.parametrize(
    ("target", "count"), [(OLD, 0), (WIDE, 2), (NEW, 2), (ARM, 2)], ids=["v2", "haswell", "cascadelake", "a76"]
)
def test_products_stay_in_integers_where_the_processor_has_an_instruction(
    target: str, count: int, tmp_path: Path
) -> None:
    assert products(two_products(signed=False), target, tmp_path) == count
