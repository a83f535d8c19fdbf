"""`autosched plugin new`: copies a package that works as it is, and renames it."""

import keyword
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from autosched import backend
from autosched.errors import RequestError
from autosched.plugin_registry import installed_plugins

TEMPLATE = Path(__file__).parent / "template"


class Scaffold(Struct, frozen=True):
    """A package to copy."""

    kind: str
    """Kind of plugin, in one word; the package is named autosched-KIND-NAME."""
    folder: Path
    word: str
    """The name in its files and file names, to be replaced."""
    group: str
    """Group of its entry point."""


BACKEND = Scaffold("backend", TEMPLATE, "mytuner", backend.GROUP)


def create(name: str, parent: Path, source: Scaffold = BACKEND) -> Path:
    """Write autosched-KIND-NAME below `parent`; returns its path. Raises RequestError if the name is in use."""
    _check(name, source)
    folder = parent / f"autosched-{source.kind}-{name.replace('_', '-')}"
    try:
        folder.mkdir(parents=True)
        for file in _files(source.folder):
            target = folder / str(file.relative_to(source.folder)).replace(source.word, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_renamed(file.read_text(), name, source))
    except FileExistsError:
        raise RequestError(
            f"{folder} is there already, and nothing was written. Choose another name or --into"
        ) from None
    except OSError as error:
        raise RequestError(f"{folder} cannot be written: {error.strerror}. Choose another place:  --into DIR") from None
    return folder


def _check(name: str, source: Scaffold) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name):
        raise RequestError(
            f"{name!r} is no name for a {source.kind}: up to 40 small letters, digits and underscores, a letter first,"
            " for example my_tuner"
        )
    if name in installed_plugins(source.group):
        raise RequestError(f"a {source.kind} named {name!r} is installed already. Choose another name")


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc")


def _renamed(text: str, name: str, source: Scaffold) -> str:
    package, word = f"autosched-{source.kind}-", source.word
    text = text.replace(f"{package}{word}", f"{package}{name.replace('_', '-')}")
    text = text.replace(word.title(), "".join(part.title() for part in name.split("_")))
    return text.replace(word, name)
