"""Imports PyTorch programs (`torch.export.save`). Runs in a child process, the only one that loads PyTorch."""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autosched.errors import ModelRejected
from autosched_tvm.compile import relax_import
from autosched_tvm.compile.frontend.preparation import Shapes
from autosched_tvm.compile.relax_import import Imported

INSTALL = "Install PyTorch: pip install 'autosched[torch]'. Or export the model to ONNX: torch.onnx.export"


def read(path: Path, shapes: Shapes) -> Imported:
    """Returns the network in a file. Raises ModelRejected and RequestError."""
    program = load(path)
    with relax_import.quietly(path.name):
        program = program.run_decompositions()  # the mutated buffers are only known after this step
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        changed = next(iter((*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values())))
        raise ModelRejected(
            f"{path.name} changes its own state ({changed!r}), as a model in training does."
            " Export it in inference mode: model.eval()"
        )
    from tvm.relax.frontend.torch import from_exported_program

    names = tuple(str(name) for name in signature.user_inputs if isinstance(name, str))
    fixes: list[str] = []
    with relax_import.quietly(path.name):
        module = from_exported_program(program, unwrap_unit_return_tuple=True, run_ep_decomposition=False)
        module = relax_import.fixed(module, names, shapes, fixes)
    nodes = sum(1 for node in program.graph.nodes if node.op == "call_function")
    inputs = relax_import.tensors(module, names)
    return Imported(module, inputs, _outputs(program), f"PyTorch {version('torch')} program", nodes, fixes)


def load(path: Path) -> Any:
    """Returns the exported program in a file. Raises ModelRejected."""
    try:
        torch = package()
    except ImportError as error:
        raise ModelRejected(f"{path.name} is a PyTorch program, and PyTorch is not installed. {INSTALL}") from error
    with relax_import.quietly(path.name):
        return torch.export.load(str(path))


def package() -> Any:
    """Returns PyTorch. Workers hide it from TVM, which would load it needlessly. Raises ImportError."""
    if sys.modules.get("torch", ...) is None:
        del sys.modules["torch"]
    import torch

    return torch


def _outputs(program: Any) -> tuple[str, ...]:
    """Returns the names of the outputs: the keys of a dictionary of tensors, or else the names in the program's
    graph."""
    names = tuple(str(name) for name in program.graph_signature.user_outputs)
    spec = program.call_spec.out_spec
    if spec is not None and spec.type is dict and spec.num_leaves == len(spec.context) == len(names):
        return tuple(map(str, spec.context))
    return names
