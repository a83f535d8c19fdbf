"""The contents of a packed network: the compiled network with its samples, its card and its licences."""

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from autosched import file_names
from autosched.errors import RequestError
from autosched.export import card, licences
from autosched.report import Report
from autosched.runtime_errors import in_words
from autosched_runtime.side_file import described, files_of

REPORT, SAMPLES = "report.json", "samples.npz"
Json = dict[str, Any]


@dataclass(frozen=True)
class Contents:
    """A network to be packed."""

    name: str
    compiled: bytes
    """The contents of NAME.so."""
    side: Json
    """Those of NAME.json."""
    library: bytes
    weights: bytes
    """Empty for a network without weights outside of its library."""
    samples: bytes
    """A .npz file; empty if none were kept."""
    promise: Json | None
    """Its latency beside that of its model, and where both were measured; None if they were not."""
    card: str
    licences: dict[str, bytes]
    """Texts by file name."""

    @property
    def architecture(self) -> str:
        """The kind of CPU that runs it, such as "x86_64"."""
        triple = self.side["target"].get("mtriple", "")
        return triple.partition("-")[0] or platform.machine()

    @property
    def cpu(self) -> str:
        """The CPU that it was compiled for, in LLVM's words."""
        return str(self.side["target"].get("mcpu", "")) or "generic"

    def others(self) -> dict[str, bytes]:
        """The other files that are packed, by name."""
        samples = {SAMPLES: self.samples} if self.samples else {}
        return {"card.md": self.card.encode(), **samples, **self.licences}


def read(module: Path, licence: Path | None = None) -> Contents:
    """The contents of a network's folder. `licence`: file of the model's licence.

    Raises RequestError, NotFound.
    """
    with in_words():
        library, side_path = files_of(module)
        description = described(side_path)
    content, side = library.read_bytes(), msgspec.json.decode(side_path.read_bytes())
    part, weights = description.library, description.weights_part
    if weights is not None and len(content) < weights.at + weights.size:
        raise RequestError(f"{library} is cut off: its end is missing. Copy it again")
    samples = library.with_suffix(f".{SAMPLES}")
    report = _report_of(library.with_name(REPORT), side)
    promise = None if report is None else card.promise(report)
    texts = licences.of(licence)
    return Contents(
        name=file_names.made_from(description.name),
        compiled=content,
        side=side,
        library=content[: part.size] if part else content,
        weights=content[weights.at : weights.at + weights.size] if weights else b"",
        samples=samples.read_bytes() if samples.is_file() else b"",
        promise=promise,
        card=card.written(side, report, promise, tuple(texts)),
        licences=texts,
    )


def _report_of(path: Path, side: Json) -> Report | None:
    """The report of the job that made the network; None without one, and for that of another job."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, msgspec.MsgspecError):
        return None
    spec = found.job.spec
    return found if spec is None or spec.model == side.get("model") else None
