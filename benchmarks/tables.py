"""Raw results as Markdown tables: a list of objects is a table, an object of numbers has a row for each. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LONGEST = 60
"""Maximum number of characters of a cell; longer lists of numbers are cut."""


def tables(told: Mapping[str, Any], title: str = "") -> Iterator[str]:
    """Yields the lines of all tables, each below the path of its values."""
    plain = {name: value for name, value in told.items() if not _nested(value)}
    if plain:
        yield from _table(title, ("", ""), list(plain.items()))
    for name, value in told.items():
        path = f"{title} / {name}" if title else name
        if isinstance(value, Mapping):
            yield from _rows(path, value) if _alike(list(value.values())) else tables(value, path)
        elif _nested(value):
            flats = [_flat(one) for one in value]
            names = list(dict.fromkeys(key for flat in flats for key in flat))
            yield from _table(path, names, [[flat.get(key) for key in names] for flat in flats])


def _rows(title: str, told: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yields objects of the same keys, one in each row."""
    flats = {name: _flat(value) for name, value in told.items()}
    names = list(next(iter(flats.values())))
    yield from _table(title, ["", *names], [[name, *map(flat.get, names)] for name, flat in flats.items()])


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    if title:
        yield from (f"**{title}**", "")
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(map(_cell, row)) + " |"
    yield ""


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _alike(values: Sequence[Any]) -> bool:
    return len(values) > 1 and all(isinstance(one, Mapping) and one.keys() == values[0].keys() for one in values)


def _flat(value: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Turns objects within an object into columns."""
    found: dict[str, Any] = {}
    for name, inner in value.items():
        found |= _flat(inner, f"{path}{name} ") if isinstance(inner, Mapping) else {f"{path}{name}": inner}
    return found


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return text.replace("|", "/")[:LONGEST]
