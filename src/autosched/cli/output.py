"""Output: data to stdout, messages to stderr."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from autosched.text import tables
from autosched.text.tables import Column
from autosched.text.visible import one_line, visible, visible_json

SCHEMA = 1
"""Version of all JSON documents that the command line prints."""

LIST_FORMATS = ("table", "wide", "json", "jsonl", "csv", "id")
FORMATS = ("table", "json", "id")
VARIABLE = "AUTOSCHED_OUTPUT"
WIDTH = 80
INTERRUPTED = 130
"""Exit code of a command that its user interrupted, as in shells."""

Row = Sequence[str]
F = TypeVar("F", bound=Callable[..., Any])


def listing_option(command: F) -> F:
    """`-o table|wide|json|jsonl|csv|id` of a command that prints a list, default from AUTOSCHED_OUTPUT."""
    return _option(
        LIST_FORMATS,
        "A table in 80 characters for people, wide for all of it, the others for programs; id for commands.",
    )(command)


def format_option(command: F) -> F:
    """`-o table|json|id` of a command that prints one object with a number or a name."""
    return _option(FORMATS, "Output format: lines for people, JSON for programs, the id for other commands.")(command)


def document_option(command: F) -> F:
    """`-o table|json` of a command that prints an object without an id."""
    return _option(FORMATS[:2], "Output format: lines for people, JSON for programs.")(command)


def _option(formats: Sequence[str], text: str) -> Callable[[F], F]:
    def from_environment(_ctx: click.Context, _option: click.Parameter, value: str | None) -> str:
        """The style named by the variable, if this command supports it."""
        wanted = value or os.environ.get(VARIABLE, "")
        if not value and wanted and wanted not in LIST_FORMATS:
            raise click.BadParameter(f"{VARIABLE} is {wanted!r}; choose from {', '.join(LIST_FORMATS)}, or unset it")
        return wanted if wanted in formats else "json" if wanted == "jsonl" else "table"

    def decorate(command: F) -> F:
        option = click.option(
            "-o", "--format", "style", type=click.Choice(formats), callback=from_environment,
            help=f"{text} Default: {VARIABLE}, or table.",
        )  # fmt: skip
        decorated: F = option(command)
        return decorated

    return decorate


def show(style: str, key: str, columns: Sequence[Column], rows: Sequence[Any], *, id: Callable[[Any], object]) -> None:
    """Print a list in any of the formats."""
    match style:
        case "json":
            document(key, rows)
        case "jsonl":
            for row in rows:
                data(visible_json(msgspec.json.encode(row).decode()))
        case "csv":
            data(tables.comma_separated(columns, rows))
        case "id":
            for row in rows:
                data(str(id(row)))
        case _:
            lines = tables.table(columns, rows, wide=style == "wide", room=room())
            data("\n".join([bold(lines[0]), *lines[1:]]))


def room() -> int:
    """Characters of a line: of the terminal, or the common default."""
    return max(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if sys.stdout.isatty() else WIDTH


def bold(text: str) -> str:
    """Bold text if colours may be used."""
    return f"\x1b[1m{text}\x1b[0m" if colours() else text


def data(text: str) -> None:
    """Print a line of a result."""
    sys.stdout.write(visible(text, colours=colours()) + "\n")


def discard() -> None:
    """Drop unwritten output, so that it is not written again at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


verbose = False
"""Whether to print calls to the daemon, and the origin of errors in the program."""
quiet = False
"""Whether only results and errors are printed."""
colour: bool | None = None
"""The user's choice of colours."""


def say(text: str = "") -> None:
    """Print a line for a person who watches."""
    if not quiet:
        complain(text)


def complain(text: str) -> None:
    """Print a warning, even if quiet."""
    sys.stderr.write(visible(text, colours=colours(sys.stderr)) + "\n")
    sys.stderr.flush()


def document(key: str, value: object) -> None:
    """A JSON document: {"schema": 1, key: value}."""
    encoded = msgspec.json.encode({"schema": SCHEMA, key: value})
    data(visible_json(msgspec.json.format(encoded, indent=2).decode()))


def colours(stream: Any = None) -> bool:
    """Whether colours may be used: on a terminal, unless the user set NO_COLOR."""
    stream = stream or sys.stdout
    if colour is not None:
        return colour
    return not os.environ.get("NO_COLOR") and not dumb() and stream.isatty()


def dumb() -> bool:
    """Whether the terminal only supports lines of text, such as a shell inside an editor."""
    return os.environ.get("TERM") == "dumb"


def table(headers: Row, rows: Sequence[Row], *, right: Sequence[int] = (), give: int = -1) -> str:
    """Columns of text. `right`: right-aligned columns. Column `give` is cut so that lines fit.

    Implemented here instead of with rich, whose import takes half of the time that a listing may take.
    """
    cells = [list(headers), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    excess = sum(widths) + 2 * (len(widths) - 1) + 1 - room()
    if excess > 0:
        widths[give] = max(6, widths[give] - excess)
    lines = []
    for row in cells:
        fields = (_fit(cell, widths[i], flush_right=i in right) for i, cell in enumerate(row))
        lines.append((" " + "  ".join(fields)).rstrip())
    return "\n".join([bold(lines[0]), *lines[1:]])


def _fit(cell: str, width: int, *, flush_right: bool) -> str:
    if len(cell) > width:
        cell = cell[: width - 1] + "…"
    return cell.rjust(width) if flush_right else cell.ljust(width)
