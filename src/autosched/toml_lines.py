"""Finds the line of a TOML file that sets a value, for messages; the parser does not report it."""

import re
from collections.abc import Sequence


def line_of(text: str, path: Sequence[str]) -> int:
    """The line that sets a path such as ["device", "0", "cores"], or the nearest existing line above it."""
    table, key = (path[0], path[-1]) if len(path) > 1 else ("", path[0] if path else "")
    nth = int(path[1]) if len(path) > 1 and path[1].isdecimal() else 0
    found, current, seen = 1, "", -1
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]\s]+)\s*\]+", line):
            current = header[1].strip("\"'")
            seen += current == table
            if current == (table or key) and seen in (nth, -1):
                found = number
        elif current == table and seen in (nth, -1) and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
    return found
