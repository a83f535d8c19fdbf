"""Whose code failed, and where: what the author of a plugin is told of an exception."""

import inspect
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from autosched.errors import AutoschedError

OURS = str(Path(__file__).parents[1]) + "/"
STDLIB = sysconfig.get_path("stdlib")
PACKAGES = ("/site-packages/", "/dist-packages/")
"""These may lie below the standard library, and plugins in them."""


class PluginFailed(AutoschedError):
    """A plugin raised what it should not; names the stage, the place and what to do."""

    code = "plugin_failed"


def failed(what: str, error: BaseException, hint: str) -> PluginFailed:
    """`what` has raised. Told with the traceback, as far as it is the plugin's."""
    frames = traceback.extract_tb(error.__traceback__)
    at = max((index for index, frame in enumerate(frames) if _foreign(frame.filename)), default=None)
    if at is None:
        where = "no line of the plugin was at work: autosched could not use what a method had answered"
    else:
        where = f"at {_said(frames[at])}"
    # It begins with the last of our own lines before the plugin's: the call. Without any, all may say something.
    first = next((index for index, frame in enumerate(frames) if _foreign(frame.filename)), 1) - 1
    shown = "".join(traceback.format_list(frames[max(first, 0) :])).rstrip()
    said = "".join(traceback.format_exception_only(error)).strip()
    return PluginFailed(f"{what} failed, {where}\nTraceback:\n{shown}\n{said}\n{hint}")


def place(error: BaseException) -> str:
    """The last line outside of autosched and Python that took part; empty when there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _foreign(frame.filename)]
    return _said(frames[-1]) if frames else ""


def _said(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno}, {frame.name}"


def _foreign(file: str) -> bool:
    if file.startswith(("<", OURS)):
        return False
    return not file.startswith(STDLIB) or any(part in file for part in PACKAGES)


def defined(at: object) -> str:
    """Where a method or a class is written; empty when there is none, or nobody knows."""
    if at is None:
        return ""
    found: Any = getattr(at, "__func__", at)
    try:
        file, number = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
    except (OSError, TypeError):
        return getattr(found, "__qualname__", "")
    return f"{file}:{number}, {getattr(found, '__qualname__', '')}"
