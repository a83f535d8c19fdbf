"""Files of the command; tests/e2e checks its output."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from autosched.errors import RequestError
from autosched_tvm.commands.module_command import _saved, read_inputs
from autosched_tvm.compile.side_file import SideFile
from autosched_tvm.device.loaded_module import LoadedModule
from autosched_tvm.tensors import Tensor

WANTED = (Tensor("x", (1, 4), "float32"), Tensor("ids", (3,), "int64", 10))


def test_inputs_are_read_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 4), "float32"))
    (tmp_path / "bad.npy").write_bytes(b"none")
    file = str(tmp_path / "x.npy")
    assert read_inputs([file], WANTED[:1], 0).keys() == {"x"}
    with pytest.raises(RequestError, match="say which input"):
        read_inputs([file], WANTED, 0)
    with pytest.raises(RequestError, match="not a readable"):
        read_inputs([f"x={tmp_path / 'bad.npy'}"], WANTED, 0)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "No data left in file"),
        (b"random bytes", "holds no array of numbers"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_without_an_array_is_refused_with_the_reason(tmp_path: Path, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(RequestError, match=rf"not a readable .npy file .*{why}"):
        read_inputs([f"{tmp_path / 'x.npy'}"], WANTED[:1], 0)


def test_several_arrays_in_a_file_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.zeros((1, 4), "float32"), ids=np.zeros(3, "int64"))
    with pytest.raises(RequestError, match=r"holds several arrays \(x, ids\)"):
        read_inputs([f"x={tmp_path / 'all.npz'}"], WANTED, 0)


def test_outputs_of_similar_names_get_files_of_their_own(tmp_path: Path) -> None:
    class Loaded:
        info = SideFile(
            format=1, name="net", build="tuned", inputs=(), target={}, versions={},
            outputs=(Tensor("a:0", (1,), "float32"), Tensor("a/0", (1,), "float32")),
        )  # fmt: skip

    said = _saved(cast(LoadedModule, Loaded()), [np.zeros(1), np.ones(1)], tmp_path)
    assert [float(np.load(one["file"])[0]) for one in said] == [0.0, 1.0]
