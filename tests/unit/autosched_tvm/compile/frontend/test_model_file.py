import zipfile
from pathlib import Path

import onnx
import pytest

from autosched_tvm.compile.frontend.model_file import FileKind, kind_of, kind_of_file
from nets import small_net


def test_a_model_file_is_recognised() -> None:
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
def test_other_files_are_not_models(data: bytes) -> None:
    assert kind_of(data) is FileKind.OTHER


def archive(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(f"net/{name}", b"x" * 5000)
    return path


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("data/weights/weight_0", "models/model.json", "archive_format"), FileKind.TORCH),
        (("data.pkl", "data/0"), FileKind.TORCH_OTHER),
        (("code/__torch__.py", "data.pkl", "constants.pkl"), FileKind.TORCH_OTHER),
        (("word/document.xml",), FileKind.OTHER),
    ],
)
def test_archives_are_recognised_by_their_names(names: tuple[str, ...], kind: FileKind, tmp_path: Path) -> None:
    assert kind_of_file(archive(tmp_path / "net.bin", *names)) is kind


def test_a_cut_program_is_truncated(tmp_path: Path) -> None:
    path = archive(tmp_path / "net.pt2", "data/weights/weight_0", "archive_format")
    path.write_bytes(path.read_bytes()[:6000])
    assert kind_of_file(path) is FileKind.TORCH_TRUNCATED


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x1c\0\0\0TFL3" + bytes(90), FileKind.TFLITE),
        (b"\x80\x02}q\0.", FileKind.TORCH_OTHER),
        (small_net().SerializeToString(), FileKind.OTHER),
        (b"", FileKind.OTHER),
    ],
)
def test_files_are_recognised_by_their_first_bytes(data: bytes, kind: FileKind, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    assert kind_of_file(path) is kind


def test_a_missing_file_has_no_kind(tmp_path: Path) -> None:
    assert kind_of_file(tmp_path / "none") is FileKind.OTHER
