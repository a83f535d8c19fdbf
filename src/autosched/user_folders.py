"""The user's folders for state, settings and downloads, as the XDG Base Directory Specification names them."""

import os
import pwd
import tempfile
from pathlib import Path

from autosched import machine
from autosched.errors import ConfigError


def home() -> Path:
    """The user's home folder. Raises ConfigError if neither HOME nor the system's list of users names one."""
    try:
        return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise ConfigError(
            f"this user (uid {os.getuid()}) has no home folder: HOME is not set, and the system's list of users names"
            " none. Set HOME to a folder in which this user may write:  HOME=/path autosched ..."
        ) from None


def state() -> Path:
    """Parent of folders with state. Raises ConfigError as `home` does."""
    return _named("XDG_STATE_HOME", ".local/state")


def settings() -> Path:
    """Parent of folders with settings. Raises ConfigError as `home` does."""
    return _named("XDG_CONFIG_HOME", ".config")


def cache() -> Path:
    """Parent of folders with downloads. Raises ConfigError as `home` does."""
    return _named("XDG_CACHE_HOME", ".cache")


def temporary() -> Path:
    """Folder for temporary files that are executed: the system's, or one in the user's home if the system's is mounted
    with noexec.

    Raises ConfigError as `home` does.
    """
    usual = Path(tempfile.gettempdir())
    if machine.executable(usual):
        return usual
    folder = home() / ".cache/autosched"  # not XDG_CACHE_HOME, which is a temporary folder in our programs
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _named(variable: str, otherwise: str) -> Path:
    return Path(os.environ.get(variable) or home() / otherwise).absolute()


def expanded(path: str | Path) -> Path:
    """An absolute path; "~" is the home folder of this user, "~name" of another. Raises ConfigError."""
    first, *rest = Path(path).parts or (".",)
    if first == "~":
        return home().joinpath(*rest).absolute()
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        raise ConfigError(f"{path}: the system's list of users has no home folder for {first}") from None
