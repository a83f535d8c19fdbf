"""Samples that are kept with a build, and read where it runs."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from autosched_runtime.errors import NetworkError
from autosched_runtime.samples import Sample, read
from autosched_runtime.side_file import Description, Tensor, samples_beside
from autosched_tvm.evaluation import kept_samples
from autosched_tvm.evaluation.output_comparison import Limits

X, TEXT, Y, MASK = "x/y:0", "text", "y", "mask"


def description(dtype: str = "float32") -> Description:
    tensors = Tensor(X, (4,), dtype), Tensor(TEXT, (2, 2), "int64")
    return Description("net", tensors, (Tensor(Y, (4,), dtype), Tensor(MASK, (), "bool")), {}, (), {}, {})


def kept(folder: Path, count: int = 3, dtype: str = "float32") -> Path:
    """Keeps samples of a build with two inputs and two outputs."""
    inputs = [{X: np.arange(4).astype(dtype) + n, TEXT: np.full((2, 2), n)} for n in range(count)]
    outputs = [[(np.arange(4) * 2 + n).astype(dtype), np.array(n > 0)] for n in range(count)]
    kept_samples.keep(folder / "tuned", inputs, outputs, [Y, MASK], [Limits(0.5, 0.1), Limits(0.0, 0.0)])
    return samples_beside(folder / "tuned")


def test_two_samples_are_kept_and_read(tmp_path: Path) -> None:
    with kept(tmp_path).open("rb") as file:
        first, second = read(file, description())
    assert np.array_equal(second.inputs[0], [1, 2, 3, 4])
    assert np.array_equal(second.inputs[1], np.full((2, 2), 1))
    assert np.array_equal(first.outputs[0], [0, 2, 4, 6])
    assert bool(second.outputs[1])
    assert first.limits == [(0.5, 0.1), (0.0, 0.0)]


def test_types_that_npz_files_lack_come_back(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with kept(tmp_path, dtype="bfloat16").open("rb") as file:
        found = read(file, description("bfloat16"))[0]
    assert found.inputs[0].dtype == ml_dtypes.bfloat16
    assert list(map(float, found.outputs[0])) == [0, 2, 4, 6]
    assert list(found.differing(found.outputs)) == []


@pytest.mark.parametrize(
    ("got", "wrong"),
    [
        ([0, 2, 4, 6], []),
        ([0.5, 2.5, 3.5, 6.6], []),  # 0.6 is a tenth of 6
        ([0, 2, 4, 7], [(0, 1.0, pytest.approx(0.6))]),
        ([0.6, 2, 4, 6], [(0, pytest.approx(0.6), 0.5)]),
        ([np.nan, 2, 4, 6], [(0, np.inf, 0.5)]),
        ([0, np.inf, 4, 6], [(0, np.inf, 0.5)]),
    ],
)
def test_outputs_are_compared_within_the_limits(got: list[float], wrong: list[object]) -> None:
    right = np.array([0, 2, 4, 6], "float32")
    sample = Sample([], [right, np.array(True)], [(0.5, 0.1), (0.0, 0.0)])
    found = [
        (number, np.inf if np.isnan(apart) else apart, allowed)
        for number, apart, allowed in sample.differing([np.array(got, "float32"), np.array(True)])
    ]
    assert found == wrong
    assert [number for number, *_ in sample.differing([right, np.array(False)])] == [1]


def test_numbers_that_are_not_finite_are_equal_to_themselves() -> None:
    odd = np.array([np.nan, np.inf, -np.inf], "float32")
    sample = Sample([], [odd], [(0.0, 0.0)])
    assert list(sample.differing([odd.copy()])) == []
    assert [number for number, *_ in sample.differing([-odd])] == [0]


def test_large_samples_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_samples, "BYTES_MAX", 100)  # one has 65 bytes
    with kept(tmp_path).open("rb") as file:
        assert len(read(file, description())) == 1
    monkeypatch.setattr(kept_samples, "BYTES_MAX", 10)
    assert not kept(tmp_path).exists()


def test_a_build_without_outputs_keeps_nothing(tmp_path: Path) -> None:
    assert not kept(tmp_path, 0).exists()


def test_the_same_samples_are_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert kept(tmp_path).read_bytes() == kept(tmp_path / "other").read_bytes()


@pytest.mark.parametrize("damage", ["empty", "cut", "another network", "no archive"])
def test_a_file_that_does_not_fit_is_refused(damage: str, tmp_path: Path) -> None:
    content = kept(tmp_path).read_bytes()
    network = description()
    if damage == "another network":
        network = Description("net", (Tensor("z", (4,), "float32"),), network.outputs, {}, (), {}, {})
    content = {"empty": b"", "cut": content[:400], "no archive": b"x" * 400}.get(damage, content)
    with pytest.raises(NetworkError, match="the samples of net cannot be read"):
        read(BytesIO(content), network)
