"""Tells a cut-off ONNX file from a file of another kind, by the outer fields of its protobuf encoding."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_IR_VERSION = 1
_GRAPH = 7
_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26})  # of ModelProto, up to ONNX 1.20


class _Cut(Exception):
    """The data ends inside a field."""


def starts_like_onnx(data: bytes) -> bool:
    """Whether the first field is one that a model has, with the type it must have."""
    try:
        field, kind, at = _tag(data, 0)
        if field == _IR_VERSION and kind == _VARINT:
            version, _ = _varint(data, at)
            return version < 1_000
        return field in _FIELDS and kind in (_VARINT if field == 5 else _BYTES,)
    except _Cut:
        return False


def looks_truncated(data: bytes) -> str:
    """Why the file must be cut off; empty when it is not."""
    at = 0
    seen = set()
    try:
        while at < len(data):
            field, kind, at = _tag(data, at)
            seen.add(field)
            at = _skip(data, at, kind)
    except _Cut:
        return f"a field goes on after the end of the file ({len(data)} bytes)"
    except ValueError:
        return ""
    return "" if _GRAPH in seen else "it has no graph"


def _tag(data: bytes, at: int) -> tuple[int, int, int]:
    tag, at = _varint(data, at)
    return tag >> 3, tag & 7, at


def _skip(data: bytes, at: int, kind: int) -> int:
    if kind == _VARINT:
        return _varint(data, at)[1]
    if kind == _BYTES:
        size, at = _varint(data, at)
    elif kind in (_FIXED32, _FIXED64):
        size = 4 if kind == _FIXED32 else 8
    else:
        raise ValueError("not a protobuf wire type")
    if at + size > len(data):
        raise _Cut
    return at + size


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
    raise ValueError("not a varint")
