"""Programs of workloads, as the record store keeps them: TVM's JSON of the module, compressed."""

import zlib

import tvm

from autosched.model import Program
from autosched_tvm.compile import toolchain
from autosched_tvm.tvm_types import IRModule

COMPRESSION = 9
"""Compression level of zlib. A program is written once and kept for years."""


def of_module(module: IRModule) -> Program:
    """Returns the program of a workload's module."""
    return of_text(tvm.ir.save_json(module).encode())


def of_text(text: bytes) -> Program:
    """Returns the program of a workload whose module is given as this TVM's JSON."""
    return Program(toolchain.program_form(), zlib.compress(text, COMPRESSION))


def text_of(program: Program) -> bytes:
    """Returns the module as JSON. Raises zlib.error."""
    return zlib.decompress(program.content)


def module_of(text: bytes) -> IRModule:
    """Returns the module of TVM's JSON. Raises TVM's exceptions for the JSON of another version."""
    return tvm.ir.load_json(text.decode())
