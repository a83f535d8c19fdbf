"""A user's own inputs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autosched.errors import RequestError
from autosched_tvm.evaluation import input_samples
from autosched_tvm.tensors import Tensor

WANTED = (Tensor("x", (2, 3), "float32"), Tensor("n", (), "int64"))


def written(folder: Path, **arrays: Any) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


def test_one_sample_has_the_shapes_of_the_inputs(tmp_path: Path) -> None:
    x = np.ones((2, 3), "float32")
    (found,) = input_samples.read(written(tmp_path, x=x, n=np.int64(4)), WANTED)
    assert np.array_equal(found["x"], x)
    assert found["n"] == 4


def test_several_samples_are_stacked_in_front(tmp_path: Path) -> None:
    x = np.arange(18, dtype="float32").reshape(3, 2, 3)
    found = input_samples.read(written(tmp_path, x=x, n=np.int64(4)), WANTED)
    assert [one["x"][0, 0] for one in found] == [0, 6, 12]
    assert [one["n"] for one in found] == [4, 4, 4]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.ones((2, 3), "float32")}, "lacks input 'n'"),
        ({"x": np.ones((2, 3), "float32"), "n": np.int64(1), "z": np.int64(1)}, "'z', which is no input"),
        ({"x": np.ones((2, 3)), "n": np.int64(1)}, "was given as float64"),
        ({"x": np.ones((3, 3), "float32"), "n": np.int64(1)}, "was given as 3x3"),
        ({"x": np.ones((4, 2, 3), "float32"), "n": np.ones(3, "int64")}, "give as many of each"),
        ({"x": np.ones((0, 2, 3), "float32"), "n": np.ones(0, "int64")}, "holds no sample"),
    ],
)
def test_samples_that_do_not_fit_are_refused_with_the_reason(
    arrays: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=words):
        input_samples.read(written(tmp_path, **arrays), WANTED)


@pytest.mark.parametrize("content", [b"", b"nothing", b"PK\x03\x04"])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(RequestError, match="cannot be read as samples"):
        input_samples.read(tmp_path / "mine.npz", WANTED)


def test_samples_are_generated_without_a_file() -> None:
    made = input_samples.of(WANTED, "")
    assert len(made) == input_samples.SEEDS
    assert not np.array_equal(made[0]["x"], made[1]["x"])
