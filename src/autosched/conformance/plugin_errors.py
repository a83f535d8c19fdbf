"""Locates exceptions in plugin code, for its author."""

import inspect
import traceback
from typing import Any

from autosched.client.backend_boundary import is_foreign, raised_at
from autosched.errors import AutoschedError

OWN_FRAMES = 2
"""Number of our own frames that are shown if a traceback has no others."""


class PluginFailed(AutoschedError):
    """A plugin raised an unexpected exception; contains the method, the position and what to do."""


def failed(method: str, error: BaseException, to_do: str) -> PluginFailed:
    """The error for an exception of the plugin's `method`, with the traceback from the plugin's code on."""
    frames = traceback.extract_tb(error.__traceback__)
    where = place(error)
    first = next((i for i, frame in enumerate(frames) if is_foreign(frame.filename)), -OWN_FRAMES)
    said = "".join(traceback.format_exception_only(error)).strip()
    lines = [
        f"{method} of the plugin failed at {where}" if where else f"{method} of the plugin gave what cannot be used:",
        "Traceback (most recent call last):",
        "".join(traceback.format_list(frames[first:])).rstrip(),
        said if not isinstance(error, SystemExit) else f"{said}, which would have ended the client",
        to_do,
    ]
    return PluginFailed("\n".join(lines))


def place(error: BaseException) -> str:
    """The last line of a traceback outside autosched and Python; empty if there is none."""
    return f"{at.filename}:{at.lineno}, {at.name}" if (at := raised_at(error)) is not None else ""


def written(*methods: object) -> str:
    """Position of the first of these methods that is not ours; empty if all are."""
    return next((where for where in map(defined, methods) if where and is_foreign(where)), "")


def defined(at: object) -> str:
    """Position of a method's or class' definition; empty if unknown."""
    if at is None:
        return ""
    found: Any = getattr(at, "__func__", at)
    try:
        file, number = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
    except (OSError, TypeError):
        return getattr(found, "__qualname__", "")
    return f"{file}:{number}, {getattr(found, '__qualname__', '')}"
