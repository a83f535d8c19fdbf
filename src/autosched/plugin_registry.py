"""Plugins of installed packages, found by entry point. Reads metadata only; imports nothing."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported for types only: it costs more than all that callers need at their start
    from importlib.metadata import EntryPoint

_read: "dict[str, dict[str, EntryPoint]]" = {}


def installed_plugins(group: str, *, anew: bool = False) -> "dict[str, EntryPoint]":
    """Plugins by name, in the order of names. Cached, because reading takes milliseconds; `anew` reads again."""
    from importlib.metadata import entry_points

    if anew or group not in _read:
        _read[group] = {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda e: e.name)}
    return _read[group]
