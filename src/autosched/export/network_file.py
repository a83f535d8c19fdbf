"""Packs a network as one file, NAME.asn: `autosched_runtime.network_file` says what it looks like."""

import hashlib
import struct
import zlib
from collections.abc import Mapping
from io import BytesIO
from zipfile import ZipFile, ZipInfo

import msgspec

from autosched.errors import RequestError
from autosched.export.contents import Contents, Json
from autosched_runtime import cpu_features
from autosched_runtime.network_file import ENTRY, MANIFEST, SUFFIX
from autosched_runtime.side_file import FORMAT

ALIGNMENT = 4096
"""Bytes to whose multiples all parts are aligned."""
BYTES_MAX = (1 << 32) - 1
"""Maximum size of a ZIP archive without its 64-bit extension."""
PADDING = 0xD935
"""Number of the extra field that aligns an entry, as Android's packages have it."""
EXTRA = struct.Struct("<HH")
"""Number and size of an extra field."""
FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The time of all entries: the same network gives the same bytes."""
WEIGHTS = "weights.bin"
__all__ = ["FIRST_DAY", "SUFFIX", "content"]


def content(contents: Contents) -> bytes:
    """The bytes of a network's file. Raises RequestError if it is too large."""
    library = f"lib/{contents.architecture}-{contents.cpu}/{contents.name}.so"
    weights = {WEIGHTS: contents.weights} if contents.weights else {}
    parts = {library: contents.library, **weights, **contents.others()}
    if sum(map(len, parts.values())) + ALIGNMENT * (2 + 2 * len(parts)) > BYTES_MAX:
        raise RequestError(f"{contents.name} is too large for one file, which has 4 GiB at most:  --as folder")
    manifest, places = _manifest(contents, library, parts)
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        _add(file, archive, MANIFEST, manifest)
        for name, part in parts.items():
            assert _add(file, archive, name, part) == places[name]
    return file.getvalue()


def _manifest(contents: Contents, library: str, parts: Mapping[str, bytes]) -> tuple[bytes, dict[str, int]]:
    """The manifest, and the places of all parts behind it."""
    room = ALIGNMENT
    while True:
        places, end = {}, ALIGNMENT + room
        for name, content in parts.items():
            places[name] = _place(end, name)
            end = places[name] + len(content)
        entries = {name: _entry(places[name], content) for name, content in parts.items()}
        variant = {**contents.side, "format": FORMAT, "library": entries[library]}
        variant["kernel_flags"] = cpu_features.in_the_kernels_words(
            contents.side.get("features", ()), contents.architecture
        )
        if contents.weights:
            variant["weights"] = {**contents.side["weights"], **entries[WEIGHTS]}
        told = {
            "format": FORMAT, "name": contents.name, "model": contents.side.get("model", ""),
            "file": contents.side.get("file", ""), "promise": contents.promise, "variants": [variant],
            "entries": entries,
        }  # fmt: skip
        text = msgspec.json.format(msgspec.json.encode(told), indent=1)
        if len(text) <= room:
            return text.ljust(room), places
        room = -(-len(text) // ALIGNMENT) * ALIGNMENT


def _entry(at: int, content: bytes) -> Json:
    return {
        "at": at, "bytes": len(content), "crc32": zlib.crc32(content), "sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip


def _place(end: int, name: str) -> int:
    """The place of an entry's content, whose header begins at `end`."""
    header = end + ENTRY.size + len(name.encode()) + EXTRA.size
    return -(-header // ALIGNMENT) * ALIGNMENT


def _add(file: BytesIO, archive: ZipFile, name: str, content: bytes) -> int:
    """Write an entry; returns the place of its content."""
    begin = file.tell()
    place = _place(begin, name)
    padding = place - begin - ENTRY.size - len(name.encode()) - EXTRA.size
    entry = ZipInfo(name, FIRST_DAY)
    entry.external_attr = 0o644 << 16
    entry.create_system = 3  # Unix, wherever it is written
    entry.extra = EXTRA.pack(PADDING, padding) + bytes(padding)
    archive.writestr(entry, content)
    return place
