"""Puts the weights of an ONNX model that lie in other files into one file: jobs take one."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from autosched.api import tvm_programs

MARK = b"\n\x08location"
"""How ONNX begins the name of another file: a field of eight characters."""
BLOCK_BYTES = 1 << 24
JOIN_S = 600.0


@asynccontextmanager
async def whole(path: Path) -> AsyncIterator[Path]:
    """Context with the file of a model that has all its weights: the model's own, or a temporary one.

    Raises RequestError where the other files are missing, or lie elsewhere than beside the model, or are too large.
    """
    if not names_other_files(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="autosched-model-") as folder:
        joined = Path(folder) / path.name
        answer = await tvm_programs.ask(tvm_programs.MODEL_WHOLE, [str(path), str(joined)], timeout_s=JOIN_S)
        yield joined if answer["files"] else path


def names_other_files(path: Path) -> bool:
    """Whether a file may name others; it is searched for the field, which text may hold too."""
    kept = b""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            if MARK in kept + block:
                return True
            kept = block[-len(MARK) :]
    return False
