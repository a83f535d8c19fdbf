"""What goes to stdout (data) and to stderr (everything said to people)."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

SCHEMA = 1
"""Version of every JSON document the command line prints."""

FORMATS = ("table", "json", "id")
WIDTH = 80

Row = Sequence[str]
F = TypeVar("F", bound=Callable[..., Any])


def format_option(command: F) -> F:
    """`-o table|json|id`, default from AUTOSCHED_OUTPUT."""
    option = click.option(
        "-o",
        "--format",
        "style",
        type=click.Choice(FORMATS),
        default="table",
        envvar="AUTOSCHED_OUTPUT",
        show_default=True,
        help="How to print: a table for people, JSON for programs, ids for other commands.",
    )
    decorated: F = option(command)
    return decorated


def data(text: str) -> None:
    """A line of result."""
    sys.stdout.write(text + "\n")


def say(text: str = "") -> None:
    """A line for the person who watches."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def document(key: str, value: object) -> None:
    """A JSON document: {"schema": 1, key: value}."""
    encoded = msgspec.json.encode({"schema": SCHEMA, key: value})
    data(msgspec.json.format(encoded, indent=2).decode())


def colours(stream: Any = None) -> bool:
    """True when colour may be written: a terminal, and the user did not say NO_COLOR."""
    stream = stream or sys.stdout
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def table(headers: Row, rows: Sequence[Row], *, right: Sequence[int] = (), give: int = -1) -> str:
    """Columns of text. `right`: columns set flush right. Column `give` is cut so that lines fit.

    Written here and not with rich, whose import costs half of what a listing may cost.
    """
    cells = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    room = max(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if sys.stdout.isatty() else WIDTH
    excess = sum(widths) + 2 * (len(widths) - 1) + 1 - room
    if excess > 0:
        widths[give] = max(6, widths[give] - excess)
    lines = []
    for row in cells:
        fields = (_fit(cell, widths[i], flush_right=i in right) for i, cell in enumerate(row))
        lines.append((" " + "  ".join(fields)).rstrip())
    if colours():
        lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
    return "\n".join(lines)


def _fit(cell: str, width: int, *, flush_right: bool) -> str:
    if len(cell) > width:
        cell = cell[: width - 1] + "…"
    return cell.rjust(width) if flush_right else cell.ljust(width)
