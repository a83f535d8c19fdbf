import onnx
import pytest

from autosched.tvm.frontend.model_file import FileKind, kind_of
from nets import small_net


def test_a_model_is_a_model() -> None:
    assert kind_of(small_net().SerializeToString()) is FileKind.ONNX


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 0.999])
def test_a_cut_model_is_truncated(share: float) -> None:
    data = small_net().SerializeToString()
    assert kind_of(data[: int(len(data) * share)]) is FileKind.TRUNCATED


def test_a_model_without_a_graph_is_truncated() -> None:
    assert kind_of(onnx.ModelProto(ir_version=8).SerializeToString()) is FileKind.TRUNCATED


@pytest.mark.parametrize(
    "data", [b"root:x:0:0:root:/root:/bin/bash\n" * 9, b"\x7fELF" + bytes(60), b"PK\x03\x04" * 20, b"\0"]
)
def test_other_files_are_other(data: bytes) -> None:
    assert kind_of(data) is FileKind.OTHER
