"""Verdicts on builds, with and without ONNX Runtime."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.tvm

from autosched.errors import RequestError  # noqa: E402
from autosched_tvm.device.loaded_module import LoadedModule  # noqa: E402
from autosched_tvm.evaluation import verification  # noqa: E402
from autosched_tvm.evaluation.onnx_reference import Reference  # noqa: E402
from autosched_tvm.evaluation.verification import Judge  # noqa: E402
from autosched_tvm.evaluation.verification_messages import Request  # noqa: E402
from autosched_tvm.generated_inputs import random_inputs  # noqa: E402
from autosched_tvm.tensors import Tensor  # noqa: E402
from nets import conv_net  # noqa: E402

TENSOR = Tensor("x", (1, 16, 16, 16), "float32")


class FakeBuild:
    """Computes ONNX Runtime's outputs, and adds an error to one element."""

    def __init__(self, model: Path, share: float) -> None:
        self._reference, self._share = Reference(model, 1), share
        outputs = (Tensor("y", (1, 16, 16, 16), "float32"),)
        self.info = type("Info", (), {"outputs": outputs, "inputs": (TENSOR,), "integers": False})

    def run(self, inputs: dict[str, Any]) -> list[Any]:
        (output,) = self._reference.expected(inputs).outputs
        output = output.copy()
        output[0, 0, 0, 0] += self._share * np.abs(output).max()
        return [output]


@pytest.fixture
def net(tmp_path: Path) -> Path:
    onnx.save(conv_net(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def judge(net: Path, default: float | None, share: float | None = None) -> Judge:
    inputs = [random_inputs([TENSOR], seed) for seed in range(2)]
    build = None if default is None else cast(LoadedModule, FakeBuild(net, default))
    return Judge(Request((str(net),), 1, "", share), inputs, build, integers=False)


def check(net: Path, found: Judge, share: float) -> bool:
    return found.check(cast(LoadedModule, FakeBuild(net, share))).equal


def test_differences_of_the_untuned_build_widen_the_tolerance(net: Path) -> None:
    exact, rough = judge(net, 0.0), judge(net, 3e-4)
    assert [check(net, exact, share) for share in (1e-6, 5e-4)] == [True, False]
    assert [check(net, rough, share) for share in (5e-4, 5e-2)] == [True, False]


def test_other_correct_results_are_measured_once_a_build_exceeds_the_tolerance_without_them(
    net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide: list[int] = []
    expected = Reference.expected

    def recorded(self: Reference, inputs: Any, seed: int = 0, *, alone: bool = False) -> Any:
        if not alone and self is not rough._reference:
            wide.append(seed)
        return expected(self, inputs, seed, alone=alone)

    exact, rough = FakeBuild(net, 0.0), FakeBuild(net, 1e-2)
    found = judge(net, None)
    monkeypatch.setattr(exact, "_reference", rough._reference)
    monkeypatch.setattr(Reference, "expected", recorded)
    assert found.check(cast(LoadedModule, exact)).equal
    assert wide == []
    for _ in range(2):
        assert not found.check(cast(LoadedModule, rough)).equal
        assert wide == [0, 1], "each sample"


def test_an_untuned_build_that_is_wrong_does_not_approve_itself(net: Path) -> None:
    found = judge(net, 0.3)
    assert found.default is not None
    assert not found.default.equal
    assert not check(net, found, 0.3)


def test_the_users_tolerance_holds_for_the_untuned_build_too(net: Path) -> None:
    found = judge(net, 0.02, share=0.05)
    assert found.default is not None
    assert found.default.equal
    assert [check(net, found, share) for share in (0.03, 0.06)] == [True, False]


def test_without_onnx_runtime_the_untuned_build_is_the_reference(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = FakeBuild(net, 0.0)
    bad = FakeBuild(net, 1e-2)

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("no such operator")

    monkeypatch.setattr(verification, "Reference", refuse)
    monkeypatch.setattr(verification.StandardReference, "__init__", refuse)
    found = Judge(Request((str(net),), 1), [random_inputs([TENSOR], 0)], cast(LoadedModule, good), integers=False)
    assert (found.reference, found.verified) == ("the untuned build", False)
    assert "cannot run the model: no such operator, nor can the reference implementation of onnx" in found.notes[0]
    assert found.check(cast(LoadedModule, good)).equal
    assert not found.check(cast(LoadedModule, bad)).equal
    with pytest.raises(RequestError, match="nothing to compare with"):
        Judge(Request((str(net),), 1), [random_inputs([TENSOR], 0)], None, integers=False)


def test_without_onnx_runtime_the_standard_is_the_reference(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("no such operator")

    monkeypatch.setattr(verification, "Reference", refuse)
    good, bad = (cast(LoadedModule, FakeBuild(net, error)) for error in (0.0, 0.1))
    samples = [random_inputs([TENSOR], seed) for seed in range(3)]
    found = Judge(Request((str(net),), 1), samples, bad, integers=False)
    assert found.verified
    assert found.reference.startswith("the reference implementation of onnx 1.")
    assert len(found.inputs) == 1, "it is slow"
    assert found.default is not None
    assert not found.default.equal, "an untuned build does not approve itself"
    assert found.check(good).equal
    assert not found.check(bad).equal


def test_a_model_that_onnx_runtime_loads_and_cannot_run_has_the_standard_as_reference(
    net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("no such quantisation")

    samples = [random_inputs([TENSOR], 0)]
    monkeypatch.setattr(Reference, "expected", refuse)
    found = Judge(Request((str(net),), 1), samples, None, integers=False)
    assert (found.verified, found.reference[:28]) == (True, "the reference implementation")


def test_outputs_of_a_module_alone_have_the_names_of_the_model(net: Path) -> None:
    difference = judge(net, None).check(cast(LoadedModule, FakeBuild(net, 0.1))).difference
    assert difference is not None
    assert difference.output == "y"
