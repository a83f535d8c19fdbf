"""The contents of a packed network: the compiled networks with their samples, their card and their licences."""

import dataclasses
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from autosched import file_names
from autosched.errors import RequestError
from autosched.export import card, licences
from autosched.export.card import Json
from autosched.report import Report
from autosched.runtime_errors import in_words
from autosched_runtime.side_file import Description, Part, Tensor, described, files_of, samples_beside

CARD, REPORT = "card.md", "report.json"


@dataclass(frozen=True)
class Variant:
    """A compiled network."""

    compiled: bytes
    """The contents of NAME.so."""
    side: Json
    """Those of NAME.json."""
    description: Description
    """The same for the runtime."""
    report: Report | None
    samples: bytes
    """A .npz file; empty if none were kept."""

    @property
    def library(self) -> bytes:
        """The library without the weights behind it."""
        part = self.description.library
        return self._content(part) if part else self.compiled

    def weights(self) -> list[bytes]:
        """The content of each weight outside of the library."""
        parts = [self._content(part) for part in self.description.weight_parts]
        return [parts[one.part][one.at : one.at + one.size] for one in self.description.weights]

    def _content(self, part: Part) -> bytes:
        return self.compiled[part.at : part.at + part.size]

    @property
    def architecture(self) -> str:
        """The kind of CPU that runs it, such as "x86_64"."""
        return str(self.side["target"].get("mtriple", "")).partition("-")[0] or platform.machine()

    @property
    def cpu(self) -> str:
        """The CPU that it was compiled for, in LLVM's words."""
        return str(self.side["target"].get("mcpu", "")) or "generic"

    @property
    def label(self) -> str:
        """A name among variants of the same shapes."""
        return f"{self.architecture}-{self.cpu}"

    @property
    def shapes(self) -> str:
        """The shapes of the inputs: "1x3x224x224"."""
        return "_".join("x".join(map(str, tensor.shape)) or "scalar" for tensor in self.description.inputs)


@dataclass(frozen=True)
class Contents:
    """A network to be packed."""

    name: str
    variants: tuple[Variant, ...]
    """The first one that a machine's CPU can run is used there."""
    card: str
    licences: dict[str, bytes]
    """Texts by file name."""
    padding: Json | None = None
    """How inputs of other sizes are padded; None: they are refused."""

    def folder(self, variant: Variant) -> str:
        """The folder of a variant in the file."""
        several = len({one.shapes for one in self.variants}) > 1
        return f"{variant.label}/{variant.shapes}" if several else variant.label

    @property
    def first(self) -> Variant:
        """The variant that the machine prefers which can run all."""
        return self.variants[0]

    def texts(self) -> dict[str, bytes]:
        """The files for people, by name."""
        return {CARD: self.card.encode(), **self.licences}


def read(modules: Sequence[Path], licence: Path | None = None, padding: Json | None = None) -> Contents:
    """The contents of one compiled network, or of several of the same model.

    `licence`: file of the model's licence. `padding`: how inputs of other sizes are padded.

    Raises RequestError, NotFound.
    """
    variants = sorted(map(_variant, modules), key=_order)
    for other in variants[1:]:
        _refuse_others(variants[0], other)
    kinds = [(one.label, one.shapes) for one in variants]
    if repeated := [f"{label}, with inputs of {shapes}" for label, shapes in kinds if kinds.count((label, shapes)) > 1]:
        raise RequestError(f"two of these networks are for {repeated[0]}: name one of them")
    texts = licences.of(licence)
    if padding is not None:
        variants = list(_with_few_samples(variants))
    shown = [(one.side, one.report) for one in variants]
    name = file_names.made_from(variants[0].description.name)
    return Contents(name, tuple(variants), card.written(shown, tuple(texts), padding), texts, padding)


def _with_few_samples(variants: Sequence[Variant]) -> Iterator[Variant]:
    """The networks of a range, which are many and alike, with the samples of those alone that are twice as large as the
    last one with samples, and of the largest for each CPU."""
    last = 0
    for one, following in zip(variants, (*variants[1:], None), strict=True):
        largest = following is None or following.label != one.label
        if kept := largest or len(one.samples) >= 2 * last:
            last = 0 if largest else len(one.samples)
        yield one if kept else dataclasses.replace(one, samples=b"")


def _order(one: Variant) -> tuple[str, int, str, list[tuple[int, ...]]]:
    """Sort key: the CPU with most features first, then the smallest shapes."""
    shapes = [tensor.shape for tensor in one.description.inputs]
    return one.architecture, -len(one.description.features), one.cpu, shapes


def _variant(module: Path) -> Variant:
    with in_words():
        library, side_path = files_of(module)
        description = described(side_path)
    content, side = library.read_bytes(), msgspec.json.decode(side_path.read_bytes())
    if any(part.at + part.size > len(content) for part in (description.library, *description.weight_parts) if part):
        raise RequestError(f"{library} is cut off: its end is missing. Copy it again")
    samples = samples_beside(library)
    return Variant(
        content, side, description, _report_of(library.with_name(REPORT), side),
        samples.read_bytes() if samples.is_file() else b"",
    )  # fmt: skip


def _refuse_others(one: Variant, other: Variant) -> None:
    """Raise RequestError unless two networks are of the same model, and take the same inputs but for their sizes."""
    if one.side.get("model") != other.side.get("model"):
        raise RequestError(
            f"{one.side['name']} and {other.side['name']} were compiled from different models: pack each by itself"
        )
    mine, theirs = ((*each.description.inputs, *each.description.outputs) for each in (one, other))
    if list(map(_kind, mine)) != list(map(_kind, theirs)):
        raise RequestError(
            f"these networks differ in their interface: {', '.join(map(str, mine))}; {', '.join(map(str, theirs))}"
        )


def _kind(tensor: Tensor) -> tuple[str, str, int]:
    return tensor.name, tensor.dtype, len(tensor.shape)


def _report_of(path: Path, side: Json) -> Report | None:
    """The report of the job that made the network; None without one, and for that of another job."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, msgspec.MsgspecError):
        return None
    spec = found.job.spec
    return found if spec is None or spec.model == side.get("model") else None
