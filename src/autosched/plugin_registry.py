"""Registry of the plugins that installed packages offer by entry point. Reads metadata only; imports none of them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its import costs more than all readers of this module need at their start
    from importlib.metadata import EntryPoint

_read: "dict[str, dict[str, EntryPoint]]" = {}


def installed_plugins(group: str, *, anew: bool = False) -> "dict[str, EntryPoint]":
    """By name, in order of the names. Reading takes milliseconds, so it is done once, and again when asked `anew`."""
    from importlib.metadata import entry_points

    if anew or group not in _read:
        _read[group] = {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda e: e.name)}
    return _read[group]
