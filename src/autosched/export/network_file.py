"""Packs a network as one file, NAME.asn: `autosched_runtime.network_file` says what it looks like."""

import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from zipfile import ZipFile, ZipInfo

import msgspec

from autosched.errors import RequestError
from autosched.export import card
from autosched.export.card import Json
from autosched.export.contents import Contents, Variant
from autosched_runtime import cpu_features
from autosched_runtime.network_file import ENTRY, MANIFEST, SUFFIX
from autosched_runtime.side_file import ALIGNMENT, FORMAT, PAGE_BYTES, SAMPLES

BYTES_MAX = (1 << 32) - 1
"""Maximum size of a ZIP archive without its 64-bit extension."""
PADDING = 0xD935
"""Number of the extra field that aligns an entry, as Android's packages have it."""
EXTRA = struct.Struct("<HH")
"""Number and size of an extra field."""
FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The time of all entries: the same network gives the same bytes."""
UNIX = 3
"""ZIP's number of the system that has written an entry."""
__all__ = ["SUFFIX", "content", "plain_entry"]


def content(contents: Contents) -> bytes:
    """The bytes of a network's file. Raises RequestError if it is too large."""
    blocks, tables = _weights(contents.variants)
    parts = {f"weights/{number}.bin": block for number, block in enumerate(blocks)}
    for one in contents.variants:
        parts[_library(contents, one)] = one.library
        if one.samples:
            parts[f"{contents.folder(one)}/{SAMPLES}"] = one.samples
    parts |= contents.texts()
    if sum(map(len, parts.values())) + PAGE_BYTES * (2 + 2 * len(parts)) > BYTES_MAX:
        raise RequestError(f"{contents.name} is too large for one file, which has 4 GiB at most:  --as folder")
    manifest, places = _manifest(contents, parts, tables)
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        _add(file, archive, MANIFEST, manifest)
        for name, part in parts.items():
            assert _add(file, archive, name, part) == places[name]
    return file.getvalue()


def _library(contents: Contents, variant: Variant) -> str:
    return f"{contents.folder(variant)}/{contents.name}.so"


def _weights(variants: Sequence[Variant]) -> tuple[list[bytes], list[list[tuple[int, int]]]]:
    """Blocks of weights, and for each variant the number of the block of each weight, and its place there.

    Equal weights are kept once, and so are those with which a larger one begins: a table of positions for a shorter
    text. A block has the weights that the same variants use, so that each reads its own alone.
    """
    known: dict[bytes, bytes] = {}
    users: dict[bytes, set[int]] = {}
    used: list[list[bytes]] = []
    for number, one in enumerate(variants):
        used.append([hashlib.sha256(weight).digest() for weight in one.weights()])
        for digest, weight in zip(used[-1], one.weights(), strict=True):
            known[digest] = weight
            users.setdefault(digest, set()).add(number)
    longer = longer_ones(known)
    for digest, other in longer.items():
        users[other] |= users[digest]
    blocks: dict[tuple[int, ...], bytearray] = {}
    places: dict[bytes, tuple[int, int]] = {}
    for digest, weight in known.items():
        if digest in longer:
            continue
        block = blocks.setdefault(tuple(sorted(users[digest])), bytearray())
        block += bytes(-len(block) % ALIGNMENT)
        places[digest] = list(blocks).index(tuple(sorted(users[digest]))), len(block)
        block += weight
    where = [[places[longer.get(digest, digest)] for digest in each] for each in used]
    return list(map(bytes, blocks.values())), where


def longer_ones(known: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """For each weight that is the begin of longer ones, the longest of them. All are named by their digests."""
    found: dict[bytes, bytes] = {}
    alike: dict[bytes, list[bytes]] = {}
    for digest in sorted(known, key=lambda digest: -len(known[digest])):
        weight = known[digest]
        others = alike.setdefault(weight[:ALIGNMENT], [])
        if (other := next((one for one in others if known[one].startswith(weight)), None)) is not None:
            found[digest] = other
        else:
            others.append(digest)
    return found


def _manifest(
    contents: Contents, parts: Mapping[str, bytes], tables: Sequence[Sequence[tuple[int, int]]]
) -> tuple[bytes, dict[str, int]]:
    """The manifest, and the places of all parts behind it."""
    room = PAGE_BYTES
    while True:
        places, end = {}, PAGE_BYTES + room
        for name, part in parts.items():
            places[name] = _place(end, name)
            end = places[name] + len(part)
        entries = {name: _entry(places[name], part) for name, part in parts.items()}
        variants = [
            _described(contents, one, table, entries) for one, table in zip(contents.variants, tables, strict=True)
        ]
        side = contents.first.side
        told = {
            "format": FORMAT, "name": contents.name, "model": side.get("model", ""), "file": side.get("file", ""),
            "padding": contents.padding, "variants": variants, "entries": entries,
        }  # fmt: skip
        text = msgspec.json.encode(told)
        if len(text) <= room:
            return text.ljust(room), places
        room = -(-len(text) // PAGE_BYTES) * PAGE_BYTES


def _described(
    contents: Contents, variant: Variant, table: Sequence[tuple[int, int]], entries: Mapping[str, Json]
) -> Json:
    """A variant as its side file describes it, with the places of its parts in this file."""
    blocks = sorted({block for block, _ in table})
    tensors = [
        {"part": blocks.index(block), "at": at, "shape": weight.shape, "dtype": weight.dtype}
        for (block, at), weight in zip(table, variant.description.weights, strict=True)
    ]
    return {
        **variant.side,
        "format": FORMAT,
        "library": entries[_library(contents, variant)],
        "weights": {"parts": [entries[f"weights/{block}.bin"] for block in blocks], "tensors": tensors},
        "samples": entries.get(f"{contents.folder(variant)}/{SAMPLES}"),
        "promise": card.promise(variant.report),
        "architecture": variant.architecture,
        "kernel_flags": cpu_features.in_the_kernels_words(variant.description.features, variant.architecture),
    }


def _entry(at: int, content: bytes) -> Json:
    return {
        "at": at, "bytes": len(content), "crc32": zlib.crc32(content), "sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip


def _place(end: int, name: str) -> int:
    """The place of an entry's content, whose header begins at `end`."""
    header = end + ENTRY.size + len(name.encode()) + EXTRA.size
    return -(-header // PAGE_BYTES) * PAGE_BYTES


def plain_entry(name: str) -> ZipInfo:
    """An entry of an archive that is the same whenever and wherever it is written."""
    entry = ZipInfo(name, FIRST_DAY)
    entry.external_attr = 0o644 << 16
    entry.create_system = UNIX
    return entry


def _add(file: BytesIO, archive: ZipFile, name: str, content: bytes) -> int:
    """Write an entry; returns the place of its content."""
    begin = file.tell()
    place = _place(begin, name)
    padding = place - begin - ENTRY.size - len(name.encode()) - EXTRA.size
    entry = plain_entry(name)
    entry.extra = EXTRA.pack(PADDING, padding) + bytes(padding)
    archive.writestr(entry, content)
    return place
