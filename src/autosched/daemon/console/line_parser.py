"""Parses a line of the console: commands, their words and options."""

import re
import shlex
from collections.abc import Iterator, Mapping

from msgspec import Struct

from autosched import formatting
from autosched.errors import RequestError

SYNONYMS = {"info": "status", "why": "explain"}
"""Second names of commands."""
_HERE = {"stop": "shutdown now"}
"""Commands of the command line that have another name here."""
_SAME = (
    "status",
    "explain",
    "job",
    "jobs",
    "devices",
    "queue",
    "slowlog",
    "audit",
    "hold",
    "release",
    "cancel",
    "undrain",
    "free",
    "resume",
)
_ELSEWHERE = re.compile(rf"\bautosched ({'|'.join((*_HERE, *_SAME))})\b(?!-)")


class Line(Struct, frozen=True):
    """One command as it was typed."""

    name: str
    words: tuple[str, ...]
    options: dict[str, str]
    """Option names without dashes; flags have an empty value."""

    @property
    def json(self) -> bool:
        """Whether the answer must be JSON."""
        return "j" in self.options


def commands(text: str, options: Mapping[str, Mapping[str, bool]]) -> Iterator[Line]:
    """Yield the commands of a line, separated by `;`. `options`: for each command, its options and whether they take a
    value.

    Raises RequestError for an unclosed quote and an unknown option.
    """
    reader = shlex.shlex(text, posix=True, punctuation_chars=";")
    reader.whitespace_split, reader.commenters = True, ""
    try:
        found = list(reader)
    except ValueError as error:
        raise RequestError(f'{str(error).lower()}: close the quote, for example --reason "new fan"') from None
    words: list[str] = []
    for word in (*found, ";"):
        if word and not word.strip(";"):
            if words:
                name = words[0].lower()
                words[0] = SYNONYMS.get(name, name)
                yield _line(words, options.get(words[0], {}))
            words = []
        else:
            words.append(word)


def _line(words: list[str], allowed: Mapping[str, bool]) -> Line:
    name, plain, options = words[0], list[str](), dict[str, str]()
    rest = iter(words[1:])
    for word in rest:
        option, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not option or word[1:2].isdecimal():
            plain.append(word)
        elif option == "j":
            options["j"] = ""
        elif option not in allowed:
            there = ", ".join(f"--{each}" for each in allowed)
            raise RequestError(f"{name} has no option {word}" + (f"; there are: {there}" if there else ""))
        elif not allowed[option]:
            options[option] = ""
        elif equals:
            options[option] = value
        elif (following := next(rest, None)) is not None:
            options[option] = following
        else:
            raise RequestError(f"--{option} needs a value. Type: help {name}")
    return Line(name, tuple(plain), options)


def as_typed_here(text: str) -> str:
    """A message of the daemon, with commands of the command line replaced by those of the console."""
    return _ELSEWHERE.sub(lambda found: _HERE.get(found[1], found[1]), text).replace(" -o json", " -j")


def seconds(text: str) -> float:
    """A duration: "90", "5m", "1h30m". Raises RequestError."""
    try:
        return formatting.seconds(text)
    except ValueError as error:
        raise RequestError(str(error)) from None


def number(text: str) -> int:
    """A whole number, "+5" and "-5" included. Raises RequestError."""
    try:
        return int(text)
    except ValueError:
        raise RequestError(f"{text!r} is no whole number") from None
