"""A network in one file, NAME.asn: a ZIP archive without compression.

Its first entry, manifest.json, describes each variant of the network as NAME.json does, and says where the parts lie:
`at` counts from the begin of the file. Its last bytes are padding. All parts begin at multiples of 4,096 bytes.
"""

import json
import platform
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from autosched_runtime.cpu_features import lacking
from autosched_runtime.errors import FileMissing, NetworkError
from autosched_runtime.side_file import Description, described, description_of, files_of

SUFFIX = ".asn"
MANIFEST = "manifest.json"
ENTRY = struct.Struct("<4s5H3I2H")
"""Header of an entry of a ZIP archive: signature, version, flags, method, time, date, checksum, size in the archive,
size, size of the name, size of the extra field (APPNOTE.TXT, 4.3.7)."""
SIGNATURE = b"PK\3\4"


class Opened(NamedTuple):
    """The contents of a network's file."""

    path: Path
    """The file that holds the libraries."""
    networks: list[Description]
    """One for each choice of the inputs' shapes, the smallest first."""
    padding: dict[str, Any] | None
    """How inputs of other sizes are padded; None: they are not. See `autosched_runtime.padding`."""


def opened(path: Path) -> Opened:
    """Open NAME.asn; or NAME.so, NAME.json, or both without a suffix. Raises NetworkError."""
    if path.suffix == SUFFIX:
        manifest = manifest_of(path)
        return Opened(path, _variants(path, manifest), manifest.get("padding"))
    library, side = files_of(path)
    return Opened(library, [described(side)], None)


def manifest_of(path: Path) -> dict[str, Any]:
    """The manifest of a network in one file. Raises NetworkError."""
    try:
        with path.open("rb") as file:
            head = file.read(ENTRY.size)
            if len(head) < ENTRY.size or not head.startswith(SIGNATURE):
                raise NetworkError(f"{path} is no network (.asn). Make one with: autosched export NAME-tuned")
            *_, checksum, size, _, name_size, extra_size = ENTRY.unpack(head)
            name = file.read(name_size)
            file.seek(extra_size, 1)
            content = file.read(size)
    except FileNotFoundError:
        raise FileMissing(f"there is no network {path}. Make one with: autosched export NAME-tuned") from None
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error.strerror}") from error
    if name != MANIFEST.encode():
        raise NetworkError(f"{path} is an archive of another kind: its first entry is no {MANIFEST}")
    if len(content) < size or zlib.crc32(content) != checksum:
        raise NetworkError(f"{path} is damaged: its {MANIFEST} is not what was written. Copy it again")
    try:
        found = json.loads(content)
        variants = found["variants"]
    except (ValueError, KeyError, TypeError):
        variants = None
    if not isinstance(variants, list) or not variants:
        raise NetworkError(f"{path} is an archive of another kind: its {MANIFEST} names no network")
    return dict(found)


def _variants(path: Path, manifest: dict[str, Any]) -> list[Description]:
    """The variants for the first CPU in the file that this machine's can stand for; without one, those for the last CPU
    of its kind. Raises NetworkError."""
    here, variants = platform.machine(), manifest["variants"]
    ours = [one for one in variants if not isinstance(one, dict) or one.get("architecture", here) == here]
    if not ours:
        others = ", ".join(sorted({str(one["architecture"]) for one in variants}))
        raise NetworkError(f"{path} was compiled for {others}, and this is {here}. Tune the model for it")
    found = [description_of(one, path) for one in ours]
    target = next((one for one in found if not lacking(one.features)), found[-1]).target
    return [one for one in found if one.target == target]
