from pathlib import Path

import numpy as np
import pytest
from msgspec import _core

from autosched.errors import NotFound, RequestError
from autosched_runtime.errors import InvalidInput
from autosched_runtime.inputs import in_order
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.generated_inputs import random_inputs
from autosched_tvm.tensors import Tensor

WANTED = (Tensor("x", (1, 4), "float32"), Tensor("ids", (3,), "int64", 10))
X = np.zeros((1, 4), "float32")
IDS = np.zeros(3, "int64")


def test_inputs_are_given_by_name_or_in_order() -> None:
    for given in ({"ids": IDS, "x": X}, [X, IDS]):
        assert [array.shape for array in in_order(WANTED, given)] == [(1, 4), (3,)]


def test_a_scalar_stays_a_scalar() -> None:
    assert in_order((Tensor("rate", (), "int64"),), [np.array(16000)])[0].shape == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"x": X}, "'ids' is missing"),
        ({"x": X, "ids": IDS, "z": X}, "no input 'z'"),
        ([X], "1 inputs given, 2 wanted"),
        ([X.reshape(4, 1), IDS], r"given as float32 4x1.*reshape\(\(1, 4\)\)"),
        ([X.astype("float64"), IDS], "astype"),
        ([np.zeros((2, 3), "float32"), IDS], "it takes 4 numbers, and these are 6"),
    ],
)
def test_inputs_that_do_not_fit_are_named(given: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        in_order(WANTED, given)  # type: ignore[arg-type]


def test_generated_inputs_are_reproducible_and_in_range() -> None:
    made = random_inputs(WANTED, 5)
    assert np.array_equal(made["x"], random_inputs(WANTED, 5)["x"])
    assert not np.array_equal(made["x"], random_inputs(WANTED, 6)["x"])
    assert 0 <= made["ids"].min() <= made["ids"].max() < 10


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no compiled module"):
        LoadedModule(tmp_path / "net.so")
    (tmp_path / "net.so").write_bytes(b"x")
    with pytest.raises(NotFound, match=r"no net\.json beside it"):
        LoadedModule(tmp_path / "net")
    (tmp_path / "net.json").write_text("{}")
    with pytest.raises(RequestError, match="does not describe a compiled module"):
        LoadedModule(tmp_path / "net.json")


def test_a_truncated_library_is_reported_and_not_loaded(tmp_path: Path) -> None:
    whole = Path(_core.__file__).read_bytes()
    (tmp_path / "net.json").write_text("{}")
    (tmp_path / "net.so").write_bytes(whole)
    with pytest.raises(RequestError, match="does not describe a compiled module"):
        LoadedModule(tmp_path / "net.so")
    (tmp_path / "net.so").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RequestError, match="its end is missing"):
        LoadedModule(tmp_path / "net.so")
