"""`autosched plugin new`: copies the template package, which works as it is."""

import keyword
import re
from collections.abc import Iterator
from pathlib import Path

from autosched import backend
from autosched.errors import RequestError

TEMPLATE = Path(__file__).parent / "template"
WORD = "mytuner"
"""The name in the template's files and file names, to be replaced."""


def create(name: str, parent: Path) -> Path:
    """Write autosched-backend-NAME below `parent`; returns its path. Raises RequestError if the name is in use."""
    _check(name)
    folder = parent / f"autosched-backend-{name.replace('_', '-')}"
    try:
        folder.mkdir(parents=True)
        for source in _files():
            target = folder / str(source.relative_to(TEMPLATE)).replace(WORD, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_renamed(source.read_text(), name))
    except FileExistsError:
        raise RequestError(
            f"{folder} is there already, and nothing was written. Choose another name or --into"
        ) from None
    except OSError as error:
        raise RequestError(f"{folder} cannot be written: {error.strerror}. Choose another place:  --into DIR") from None
    return folder


def _check(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name):
        raise RequestError(
            f"{name!r} is no name for a backend: up to 40 small letters, digits and underscores, a letter first, for"
            " example my_tuner"
        )
    if name in backend.available():
        raise RequestError(f"a backend named {name!r} is installed already. Choose another name")


def _files() -> Iterator[Path]:
    yield from (path for path in sorted(TEMPLATE.rglob("*")) if path.is_file() and path.suffix != ".pyc")


def _renamed(text: str, name: str) -> str:
    text = text.replace(f"autosched-backend-{WORD}", f"autosched-backend-{name.replace('_', '-')}")
    text = text.replace(WORD.title(), "".join(part.title() for part in name.split("_")))
    return text.replace(WORD, name)
