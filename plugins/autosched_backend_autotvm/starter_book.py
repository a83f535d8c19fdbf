"""The starter book: a few good configurations for each template and class of CPUs, which the package contains.

A search without any knowledge begins with them. `make_starter_book` writes the books. Does not use TVM.
"""

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from autosched_backend_autotvm.config_space import Config

FOLDER = Path(__file__).parent / "starter_books"


class Chapter(Struct, frozen=True, forbid_unknown_fields=True):
    """Configurations of one template."""

    tasks: int
    """Number of tasks from which they were chosen."""
    speeds: tuple[float, ...]
    """Prediction for each number of tried configurations, from 1: the best known latency of a task over the best among
    its schedule by rule and that many of the first configurations, as a mean over tasks. 1.0: as fast as is known."""
    configs: tuple[Config, ...]
    """Configurations, the most useful first."""


Book: TypeAlias = dict[str, Chapter]
"""Chapters by the name of their template."""


def configs(template: str, classes: Sequence[str]) -> tuple[Config, ...]:
    """Returns the configurations for a template, the most useful first; none where no book has them.

    `classes`: names of the classes of instruction sets to which the CPU belongs, the most special one first.
    """
    chapters = (book(name).get(template) for name in classes)
    return next((chapter.configs for chapter in chapters if chapter is not None), ())


@cache
def book(name: str) -> Book:
    """Returns the book for a class of CPUs; an empty one where there is none."""
    file = FOLDER / f"{name}.toml"
    return msgspec.convert(tomllib.loads(file.read_text()), Book) if file.exists() else {}


def text_of(name: str, chapters: Book, source: str) -> str:
    """Returns the text of a book, with one line for each configuration. `source`: what it was made from."""
    lines = [
        f"# Configurations with which searches on CPUs of the class {name} begin; see make_starter_book.py.",
        f"# Made from {source}.",
    ]
    for template, chapter in sorted(chapters.items()):
        lines += ["", f'["{template}"]', f"tasks = {chapter.tasks}"]
        lines += [f"speeds = [{', '.join(f'{speed:.3f}' for speed in chapter.speeds)}]", "configs = ["]
        lines += [f"    {{ {_line(config)} }}," for config in chapter.configs]
        lines.append("]")
    return "\n".join(lines) + "\n"


def _line(config: Config) -> str:
    return ", ".join(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in config.items())
