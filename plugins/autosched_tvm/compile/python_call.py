"""Compiles a kernel that runs a Python program in the process that calls it, such as a board's RPC server."""

from typing import Any

from autosched_tvm.compile import shared_library

TEXT = "exec(compile(open({file!r}).read(), {file!r}, 'exec'), {{'__name__': 'autosched_board'}})"
"""Python statement that the kernel runs."""


def build(output: str, file: str, triple: str) -> str:
    """Writes a library to `output` whose function `main` runs the Python program with this name in the working folder.

    `triple`: LLVM triple of the machine that runs it; empty: this machine's. Returns `output`.
    """
    import tvm
    from tvm import tirx

    def call(name: str, *arguments: Any) -> Any:
        return tirx.call_extern("int32", name, *arguments)

    before = tirx.Var("before", "int32")  # whether the thread held Python's lock
    body = tirx.SeqStmt(
        [
            tirx.Bind(before, call("PyGILState_Ensure")),
            tirx.Evaluate(call("PyRun_SimpleString", tvm.ir.StringImm(TEXT.format(file=file)))),
            tirx.Evaluate(call("PyGILState_Release", before)),
        ]
    )
    function = tirx.PrimFunc([], body).with_attr("global_symbol", "main")
    code = tvm.tirx.build(tvm.IRModule({"main": function}), target=shared_library.target_of(triple))
    shared_library.write(code, output, triple)
    return output
