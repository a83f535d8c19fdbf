"""Licences and notices of what a packed network contains: code that TVM has made, and the user's model."""

from importlib.metadata import distribution
from pathlib import Path

from autosched.errors import NotFound

NOTICE = """\
This network was compiled by autosched with Apache TVM. It contains machine code and a program that TVM has made.

Apache TVM, Copyright 2017-2026 The Apache Software Foundation
Apache TVM FFI, Copyright 2024-present The Apache Software Foundation
This product includes software developed at The Apache Software Foundation (https://www.apache.org/).

Both are under the Apache License 2.0 (LICENSES/Apache-2.0.txt). Conversions of float16 numbers are from the LLVM
Project, under the Apache License 2.0 with LLVM Exceptions.
"""
APACHE, MODEL = "LICENSES/Apache-2.0.txt", "LICENSES/model.txt"
OF_THE_MODEL = "\nThe network computes what its model does, whose licence is in LICENSES/model.txt.\n"


def of(model: Path | None) -> dict[str, bytes]:
    """The texts by file name. `model`: the file of the model's licence. Raises NotFound."""
    text = next(path for path in distribution("autosched").files or () if path.name == "LICENSE")
    found = {"NOTICE": NOTICE.encode(), APACHE: text.read_binary()}
    if model is None:
        return found
    if not model.is_file():
        raise NotFound(f"there is no licence {model}. Name a file:  --licence LICENSE.txt")
    return {**found, "NOTICE": (NOTICE + OF_THE_MODEL).encode(), MODEL: model.read_bytes()}
