"""Whose code failed, and where: what the author of a plugin is told of an exception."""

import inspect
import traceback
from typing import Any

from autosched.client.backend_boundary import is_foreign, raised_at
from autosched.errors import AutoschedError

OWN_FRAMES = 2
"""Number of our own frames that are shown where a traceback has no others."""


class PluginFailed(AutoschedError):
    """A plugin raised what it should not; names the method, the place and what to do."""


def failed(method: str, error: BaseException, to_do: str) -> PluginFailed:
    """The plugin's `method` has raised. Told with the traceback, but for our own calls that led there."""
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
    """The last line outside of autosched and Python that took part; empty when there is none."""
    return f"{at.filename}:{at.lineno}, {at.name}" if (at := raised_at(error)) is not None else ""


def written(*methods: object) -> str:
    """Where the first of these is written that is not ours; empty when all are."""
    return next((where for where in map(defined, methods) if where and is_foreign(where)), "")


def defined(at: object) -> str:
    """Where a method or a class is written; empty when there is none, or the place is not known."""
    if at is None:
        return ""
    found: Any = getattr(at, "__func__", at)
    try:
        file, number = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
    except (OSError, TypeError):
        return getattr(found, "__qualname__", "")
    return f"{file}:{number}, {getattr(found, '__qualname__', '')}"
