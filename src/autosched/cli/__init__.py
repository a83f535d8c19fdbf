"""The `autosched` command: a thin layer over the Python API. Commands are imported when they are used.

Exit codes: 0 ok, 1 failed, 2 usage, 3 daemon not running, 4 not found, 5 refused, 6 job failed, 7 job cancelled,
8 damaged, 124 `wait --timeout`, 130 interrupted.
"""

import gc
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit."""
    gc.disable()  # what is imported stays: collecting meanwhile is a tenth of a listing's time; app.py turns it on
    words = sys.argv[1:]
    if not words or "--help" in words or "-h" in words:
        _colour_help()
    from autosched.cli.app import run

    code = run(words)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _colour_help() -> None:
    """Let rich-click write the help; its import is spared to all other calls."""
    import rich_click
    from rich_click.patch import patch

    patch(rich_click.RichHelpConfiguration(max_width=100, commands_before_options=True))
