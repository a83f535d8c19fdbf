"""Finds the models that an experiment names: files, folders, patterns and names of the zoo."""

from collections.abc import Iterator, Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path

from msgspec import Struct

from autosched import api, zoo
from autosched.api import Model
from autosched.errors import RequestError
from autosched.wire import blob_transfer

ENDINGS = (".onnx", ".tflite", ".pt2")
"""Suffixes of model files in a folder."""


class Found(Struct, frozen=True):
    """One model."""

    label: str
    """Name in tables: as in the file of the experiment, or the name of a file in a folder."""
    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    sha256: str

    def model(self, shapes: Mapping[str, tuple[int, ...]]) -> Model:
        """The model for a job. `shapes`: replace the known ones."""
        return api.load_model(self.path, shapes or self.shapes)


def expand(words: Sequence[str], folder: Path) -> list[str]:
    """Replace folders and patterns by the files that they select. `folder`: base of relative names. Raises RequestError
    for a word that selects nothing."""
    return [name for word in words for name in _expanded(word, folder)]


def find(word: str, folder: Path) -> Found:
    """The model of a word that `expand` returned; one of the zoo is downloaded. Raises RequestError."""
    path = folder / Path(word).expanduser()
    shapes: Mapping[str, tuple[int, ...]] = {}
    if not path.exists() and word in (known := zoo.catalogue()):
        path, shapes = zoo.fetch(word), known[word].shapes
    api.load_model(path)
    return Found(word, path, shapes, blob_transfer.sha256(path))


def _expanded(word: str, folder: Path) -> Iterator[str]:
    path = folder / Path(word).expanduser()
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if one.suffix in ENDINGS)
        if not files:
            raise RequestError(f"there is no model in the folder {word}: no file that ends with {', '.join(ENDINGS)}")
        yield from (f"{word.rstrip('/')}/{one.name}" for one in files)
    elif has_magic(word):
        names = sorted(glob(word, root_dir=folder))
        if not names:
            raise RequestError(f"the pattern {word} matches no file")
        yield from names
    elif path.exists() or word in zoo.catalogue():
        yield word
    else:
        raise RequestError(
            f"{word} is neither a file nor a model of the zoo. The zoo has: {', '.join(zoo.catalogue())}"
        )
