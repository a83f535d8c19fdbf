"""Starts modules of this project as programs that the user's folder and environment cannot change by accident.

A file like ``queue.py`` in the current folder, a PYTHONPATH with an older numpy, or the variables of the user whose
command started a daemon would otherwise decide what its programs import and how they behave.
"""

import os
import runpy
import sys
from collections.abc import Mapping
from typing import Final

MODULE = "autosched.process.isolated_python"
ADDED = "AUTOSCHED_PYTHONPATH"
"""Environment variable with the folders of the user's PYTHONPATH."""
NAMES: Final = frozenset({
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "NO_COLOR", "PATH", "SHELL", "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER",
    "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONPYCACHEPREFIX",
    "PYTHONUTF8", "KRB5CCNAME", "SSH_AUTH_SOCK", "REQUESTS_CA_BUNDLE",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
})  # fmt: skip
"""Environment variables that a program gets."""
PREFIXES: Final = (
    "AUTOSCHED_", "CUDA_", "DASK_", "LC_", "LD_", "NVIDIA_", "OPENBLAS_", "PG", "SLURM_", "SSL_", "XDG_",
)  # fmt: skip
"""Prefixes of further ones: of this project and plugins, of drivers, loaders and clusters."""

NAMES_APART: Final = frozenset({
    "AUTOSCHED_HIDE_CPU_FEATURES", "AUTOSCHED_PYTHONPATH", "LANG", "LANGUAGE", "NO_COLOR", "PATH", "TZ",
    "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONUTF8",
})  # fmt: skip
"""Environment variables that a program gets which works for another user."""
PREFIXES_APART: Final = ("CUDA_", "LC_", "LD_", "NVIDIA_", "OPENBLAS_")
"""Prefixes of further ones."""


def command(module: str, *words: str) -> list[str]:
    """The command that runs a module as a program. Its current folder is not on its import path (``-P``), and the
    folders of PYTHONPATH come after the installed packages."""
    return [sys.executable, "-P", "-m", MODULE, module, *words]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a program: the variables of this process that are listed above, and `more`."""
    return {**_inherited(NAMES, PREFIXES), **(more or {})}


def environment_apart(more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that works for another user: nothing that may hold a secret, and `more`."""
    return {**_inherited(NAMES_APART, PREFIXES_APART), **more}


def _inherited(names: frozenset[str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in names or name.startswith(prefixes)}


def installed_packages_first() -> None:
    """Move the folders of PYTHONPATH to the end of the import path: they may add packages, such as plugins under
    development, but replace none that is installed or part of Python.

    The variable is renamed: Python itself starts interpreters, such as the server of forked workers, that would import
    from it first.
    """
    given = os.pathsep.join(filter(None, (os.environ.pop("PYTHONPATH", ""), os.environ.get(ADDED, ""))))
    if given:
        os.environ[ADDED] = given
    added = dict.fromkeys(os.path.abspath(folder) for folder in given.split(os.pathsep) if folder)
    sys.path[:] = [*(folder for folder in sys.path if os.path.abspath(folder) not in added), *added]


def main() -> None:
    """Run the module that the command line names."""
    installed_packages_first()
    sys.argv[:] = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
