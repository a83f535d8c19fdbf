"""Programs of workloads, as the record store keeps them: the module as TVM writes it in JSON, compressed."""

import zlib
from typing import Any

import tvm

from autosched.model import Program
from autosched_tvm.compile import toolchain

COMPRESSION = 9
"""Level of zlib: a program is written once and kept for ever."""


def of_module(module: Any) -> Program:
    """The program of a workload's module."""
    return of_text(tvm.ir.save_json(module).encode())


def of_text(text: bytes) -> Program:
    """The program of a workload whose module this TVM has written as JSON."""
    return Program(toolchain.program_form(), zlib.compress(text, COMPRESSION))


def text_of(program: Program) -> bytes:
    """The module as JSON. Raises zlib.error."""
    return zlib.decompress(program.content)


def module_of(text: bytes) -> Any:
    """The module that TVM has written as JSON. Raises what TVM raises for the text of another version."""
    return tvm.ir.load_json(text.decode())
