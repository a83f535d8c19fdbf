"""The `autosched` command: a thin layer over the Python API. Commands are imported when they are used.

Exit codes: 0 ok, 1 failed, 2 usage, 3 daemon not running, 4 not found, 5 refused, 6 job failed, 7 job cancelled,
8 damaged, 124 `wait --timeout`, 130 interrupted.
"""

import gc
import os
import sys
from io import TextIOWrapper
from typing import NoReturn

from autosched.process.isolated_python import installed_packages_first

OTHERS = 0o077
"""Rights that a umask may take from new files. It must leave the owner's: the daemon could not read its own files."""


def main() -> NoReturn:
    """Run the command line and exit."""
    installed_packages_first()
    os.umask(os.umask(OTHERS) & OTHERS)
    gc.disable()  # garbage collection during imports is a tenth of a listing's time; app.py turns it on
    try:
        _stand_in_for_closed()
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while commands are imported; `run` handles all later ones
        sys.stderr.write("\nautosched: interrupted\n")
        code = 130
    sys.exit(code)


def _run(words: list[str]) -> int:
    if not words or "--help" in words or "-h" in words:
        _colour_help()
    from autosched.cli.command_table import run

    return run(words)


def _stand_in_for_closed() -> None:
    """Open the standard streams that are closed: otherwise a database or socket would get the number of an output."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this stream's
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115 - open for as long as the process
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may not support "…"; print "?" instead of failing


def _colour_help() -> None:
    """Let rich-click write help; it is imported for help only."""
    import rich_click
    from rich_click.patch import patch

    patch(rich_click.RichHelpConfiguration(max_width=100, commands_before_options=True))
