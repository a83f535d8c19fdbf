"""Tells a cut-off ONNX file from a file of another kind, by the outer fields of its protobuf encoding."""

from enum import Enum

_VARINT, _BYTES = 0, 2
_IR_VERSION, _GRAPH = 1, 7
_KINDS = {1: _VARINT, 5: _VARINT} | dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), _BYTES)
"""Fields of ModelProto (up to ONNX 1.23) and how each is encoded."""


class FileKind(Enum):
    """What a file is."""

    ONNX = "an ONNX model, as far as its outer fields tell"
    TRUNCATED = "the beginning of an ONNX model"
    OTHER = "something else"


class _Cut(Exception):
    """The data ends inside a field."""


def kind_of(data: bytes) -> FileKind:
    """Read the outer fields only; their contents are for the real parser."""
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
