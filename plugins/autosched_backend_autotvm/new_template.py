"""``python -m autosched_backend_autotvm.new_template NAME [--into DIR]``: writes a package with a working template."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from autosched.conformance import scaffold
from autosched.errors import AutoschedError
from autosched_backend_autotvm.templates.user_templates import GROUP

FOLDER = Path(__file__).parent / "scaffold"
TEMPLATE = scaffold.Scaffold("template", FOLDER, "mypattern", GROUP)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes autosched-template-NAME; returns 0 if it was written."""
    parser = argparse.ArgumentParser(prog="python -m autosched_backend_autotvm.new_template", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--into", type=Path, default=Path(), help="folder in which it is written")
    args = parser.parse_args(argv)
    try:
        folder = scaffold.create(args.name, args.into, TEMPLATE)
    except AutoschedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{folder}\n Next:  cd {folder} && pip install -e '.[test]' && pytest\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
