"""Detects the kind of a model file by its contents. A truncated ONNX file is detected by its outer protobuf fields."""

import struct
import zipfile
from enum import Enum
from pathlib import Path
from typing import IO

from autosched.task_bundle import MAGIC

HEAD_BYTES = 4096
"""Number of bytes read to detect TFLite files and archives."""
_TFLITE = b"TFL3"
"""File identifier of TFLite's FlatBuffers schema, at byte 4."""
_ZIP = b"PK\x03\x04"
_IN_PROGRAMS = (b"/data/weights/", b"/data/constants/", b"/models/", b"/archive_format")
"""Parts of the names in the archive of a PyTorch program."""
_PICKLE = b"\x80\x02"

_VARINT, _BYTES = 0, 2
_IR_VERSION, _GRAPH = 1, 7
_KINDS = {1: _VARINT, 5: _VARINT} | dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), _BYTES)
"""Encoding of the fields of ModelProto (up to ONNX 1.23)."""


class FileKind(Enum):
    """Kinds of model files."""

    ONNX = "an ONNX model, as far as its outer fields tell"
    TRUNCATED = "the beginning of an ONNX model"
    OTHER = "something else"
    TFLITE = "a TFLite model"
    TORCH = "a PyTorch program, written by torch.export.save"
    TORCH_TRUNCATED = "the beginning of a PyTorch program"
    TASKS = "tasks that autosched has collected from networks"
    TORCH_OTHER = "a PyTorch file that holds no exported program: weights, a pickled module or TorchScript"


def kind_of_file(path: Path) -> FileKind:
    """Returns the kind of a file by its first bytes, or by a name in an archive; `kind_of` detects ONNX.

    Returns OTHER for all other files, and for a file that cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            if head.startswith(MAGIC):
                return FileKind.TASKS
            if head[4:8] == _TFLITE:
                return FileKind.TFLITE
            if head.startswith(_PICKLE):
                return FileKind.TORCH_OTHER
            return _kind_of_archive(file, head) if head.startswith(_ZIP) else FileKind.OTHER
    except OSError:
        return FileKind.OTHER


def _kind_of_archive(file: IO[bytes], head: bytes) -> FileKind:
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name.partition("/")[2] for name in archive.namelist()]
    except (zipfile.BadZipFile, struct.error):
        return FileKind.TORCH_TRUNCATED if any(word in head for word in _IN_PROGRAMS) else FileKind.OTHER
    if "archive_format" in names:
        return FileKind.TORCH
    return FileKind.TORCH_OTHER if "data.pkl" in names else FileKind.OTHER


class _Cut(Exception):
    """The data ends inside a field."""


def kind_of(data: bytes) -> FileKind:
    """Returns the kind of the data by its outer fields; the parser checks their contents."""
    seen = set()
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            field, kind = tag >> 3, tag & 7
            if _KINDS.get(field) != kind:
                return FileKind.OTHER
            size, at = _varint(data, at)
            if kind == _BYTES:
                at += size
                if at > len(data):
                    raise _Cut
            seen.add(field)
    except _Cut:
        return FileKind.TRUNCATED if _IR_VERSION in seen else FileKind.OTHER
    if _GRAPH in seen:
        return FileKind.ONNX
    return FileKind.TRUNCATED if _IR_VERSION in seen else FileKind.OTHER


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _Cut
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return value, at
