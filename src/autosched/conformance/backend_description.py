"""``python -m autosched.conformance.backend_description NAME``: import one backend and print its description as
JSON."""

import inspect
import json
import sys
from typing import Any

import msgspec

from autosched import backend
from autosched.conformance.option_help import option_help
from autosched.errors import AutoschedError


def describe(name: str) -> dict[str, Any]:
    """Version of the interface, first line of the documentation, and options. Raises RequestError."""
    found = backend.load(name)
    options = getattr(found, "Options", None) or getattr(found, "options", None)
    doc = inspect.getdoc(inspect.getmodule(type(found))) or ""
    return {
        "api": list(found.api),
        "doc": doc.partition("\n")[0],
        "options": msgspec.to_builtins(option_help(options)),
    }


def main() -> None:
    """Print the description of one backend; output of the backend itself comes before it."""
    try:
        answer = {"ok": True, **describe(sys.argv[1])}
    except AutoschedError as error:
        answer = {"ok": False, "error": str(error), "code": error.code}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
