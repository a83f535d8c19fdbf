"""Pictures (SVG) of the output of commands at a terminal.

A picture of several screens is animated, at SPEED times the speed of the command. It ends with its last screen, which
viewers without animations show. The file contains each line of text once for each of its changes.
"""

import os
import time
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

import pexpect
import pyte

COLUMNS, ROWS = 114, 44
"""Size of the terminal in characters."""
SAMPLE_EVERY_S = 1.0
"""Seconds between two samples of the screen."""
SPEED = 6.0
"""Seconds of the command per second of its picture."""
LAST_SCREEN_S = 12.0
"""Seconds for which the last screen is shown before the animation restarts."""
COMMAND_TIMEOUT_S = 600.0
"""Maximum seconds without new output."""
CHARACTER = (8.4, 18.0)
"""Width and height of a character in pixels, at FONT_SIZE."""
FONT_SIZE = 14
MARGIN = 12
BACKGROUND, FOREGROUND = "#16181d", "#d5d8df"
COLOURS = {
    "black": "#16181d",
    "red": "#f0716b",
    "green": "#7fd07a",
    "brown": "#e2b35c",
    "blue": "#6ea8f2",
    "magenta": "#c893e8",
    "cyan": "#5cc8cf",
    "white": "#d5d8df",
}
"""Colours of the terminal, by the names of pyte (brown is yellow)."""


class Piece(NamedTuple):
    """Neighbouring characters of one style. Colours are `#rrggbb`, empty for the terminal's own."""

    text: str
    colour: str
    background: str
    bold: bool


Line = tuple[Piece, ...]
Screen = tuple[Line, ...]


class Shown(NamedTuple):
    """A line of a row of the screen, with the seconds of the picture between which it is shown."""

    row: int
    line: Line
    from_s: float
    to_s: float


class CommandFailed(Exception):
    """A recorded command has failed."""


def record(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> list[tuple[float, Screen]]:
    """Returns the screens of a command at a terminal, each with its second; the last is the final one.

    Raises CommandFailed.
    """
    terminal = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(terminal)
    child = pexpect.spawn(
        command[0],
        list(command[1:]),
        dimensions=(ROWS, COLUMNS),
        env={**environment, "TERM": "xterm-256color"},
        encoding="utf-8",
        timeout=COMMAND_TIMEOUT_S,
    )
    started_s, screens = time.monotonic(), list[tuple[float, Screen]]()
    while True:
        try:
            stream.feed(child.read_nonblocking(65536, COMMAND_TIMEOUT_S))
        except pexpect.EOF:
            break
        now_s = time.monotonic() - started_s
        if not screens or now_s - screens[-1][0] >= SAMPLE_EVERY_S:
            screens.append((now_s, screen(terminal)))
    screens.append((time.monotonic() - started_s, screen(terminal)))
    child.close()
    if child.exitstatus != 0:
        raise CommandFailed(f"{' '.join(command)} exited with status {child.exitstatus}: {screens[-1][1]}")
    return screens


def screen(terminal: pyte.Screen) -> Screen:
    """Returns the screen of a terminal, without trailing blanks."""
    rows = []
    for row in range(terminal.lines):
        cells = [terminal.buffer[row][column] for column in range(terminal.columns)]
        pieces = [
            Piece("".join(cell.data for cell in same), *style)
            for style, same in groupby(cells, lambda cell: (colour(cell.fg), colour(cell.bg), cell.bold))
        ]
        while pieces and not pieces[-1].text.strip() and not pieces[-1].background:
            pieces.pop()
        if pieces and not pieces[-1].background:
            pieces[-1] = pieces[-1]._replace(text=pieces[-1].text.rstrip())
        rows.append(tuple(pieces))
    return tuple(rows)


def colour(name: str) -> str:
    """Returns one of pyte's colours as `#rrggbb`, or "" for the terminal's own."""
    if name == "default":
        return ""
    return COLOURS.get(name.removeprefix("bright"), f"#{name}")


def shown(screens: Sequence[tuple[float, Screen]]) -> list[Shown]:
    """Returns each line of each row with the time for which it is shown, in seconds of the picture."""
    first_s = screens[0][0]
    end_s = (screens[-1][0] - first_s) / SPEED + LAST_SCREEN_S
    lines = []
    for row in range(len(screens[-1][1])):
        seen = [((at_s - first_s) / SPEED, picture[row]) for at_s, picture in screens]
        changes = [(at_s, line) for index, (at_s, line) in enumerate(seen) if not index or line != seen[index - 1][1]]
        ends_s = [*(at_s for at_s, _ in changes[1:]), end_s]
        lines += [
            Shown(row, line, at_s, to_s) for (at_s, line), to_s in zip(changes, ends_s, strict=True) if line
        ]  # fmt: skip
    return lines


def still(picture: Screen, title: str) -> str:
    """Returns a picture of one screen."""
    lines = [Shown(row, line, 0.0, 0.0) for row, line in enumerate(picture) if line]
    return _framed(lines, title, [], [drawn(line) for line in lines])


def animation(screens: Sequence[tuple[float, Screen]], title: str) -> str:
    """Returns an animation of all screens. Without animations, the last one is visible."""
    lines = shown(screens)
    total_s = max(line.to_s for line in lines)
    styles = [
        f".l{{animation-duration:{total_s:.1f}s;animation-timing-function:step-end;"
        "animation-iteration-count:infinite}",
        "@media (prefers-reduced-motion:reduce){.l{animation:none}}",
    ]
    texts = []
    for number, line in enumerate(lines):
        last = line.to_s == total_s
        begin, end = 100 * line.from_s / total_s, 100 * line.to_s / total_s
        keys = [f"0%{{visibility:{'visible' if begin == 0 else 'hidden'}}}", f"{begin:.2f}%{{visibility:visible}}"]
        keys += [] if last else [f"{end:.2f}%{{visibility:hidden}}"]
        styles.append(f"@keyframes k{number}{{{''.join(keys)}}}.k{number}{{animation-name:k{number}}}")
        texts.append(
            f'<g class="l k{number}"{"" if last else " visibility=" + chr(34) + "hidden" + chr(34)}>{drawn(line)}</g>'
        )
    return _framed(lines, title, styles, texts)


def _framed(lines: Sequence[Shown], title: str, styles: Sequence[str], texts: Sequence[str]) -> str:
    """Returns the SVG of a terminal with these lines, drawn as `texts`."""
    rows = 1 + max(line.row for line in lines)
    width, height = COLUMNS * CHARACTER[0] + 2 * MARGIN, rows * CHARACTER[1] + 2 * MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
            f' font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="{FONT_SIZE}">',
            f"<title>{escape(title)}</title>",
            "<style>text{white-space:pre}",
            *styles,
            "</style>",
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
            f'<g fill="{FOREGROUND}">',
            *texts,
            "</g></svg>",
            "",
        ]
    )


def drawn(line: Shown) -> str:
    """Returns the pieces of one line. Each has its own length, so that any monospaced font keeps the columns."""
    drawn, column = [], 0
    top = MARGIN + line.row * CHARACTER[1]
    for piece in line.line:
        left, length = MARGIN + column * CHARACTER[0], len(piece.text) * CHARACTER[0]
        column += len(piece.text)
        if piece.background:
            drawn.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{length:.1f}" height="{CHARACTER[1]}"'
                f' fill="{piece.background}"/>'
            )
        if piece.text.strip():
            style = f' fill="{piece.colour}"' * bool(piece.colour) + ' font-weight="bold"' * piece.bold
            place = f'x="{left:.1f}" y="{top + FONT_SIZE:.1f}" textLength="{length:.1f}"'
            drawn.append(f"<text {place}{style}>{escape(piece.text)}</text>")
    return "".join(drawn)
