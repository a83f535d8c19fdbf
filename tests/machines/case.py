"""One machine or one surrounding on which the program must work, or say in one sentence what to do."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autosched" / "machines"
"""Folder of the systems that were made, and of the results."""
PROJECT = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """The program did not do what it must; the text holds what it said."""


class Impossible(Exception):
    """This machine cannot try the case; the text says what it lacks."""


@dataclass(frozen=True)
class Case:
    """A name, and what tries it: a function of an empty folder that returns the words that were seen.

    The function raises Failed or Impossible.
    """

    name: str
    attempt: Callable[[Path], str]
