"""Prepared networks of each file format, from which tasks and builds are made.

An ONNX network stays an ONNX graph until it is compiled. A network of another format is imported once, into a Relax
module: the packages that read its file load slowly, and only the import needs them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import onnx
import tvm
from msgspec import Struct

from autosched.errors import ModelRejected
from autosched_tvm.compile import onnx_import
from autosched_tvm.compile.frontend import input_ranges
from autosched_tvm.compile.frontend.model_file import FileKind, kind_of_file
from autosched_tvm.compile.frontend.preparation import Shapes
from autosched_tvm.compile.frontend.standard_operators import stays
from autosched_tvm.compile.integers import dot_instructions, packed_products, tile_instructions
from autosched_tvm.compile.relax_import import Imported
from autosched_tvm.compile.rules.parallelisation import cores_of
from autosched_tvm.tensors import Tensor
from autosched_tvm.tvm_types import IRModule, Target

SIMPLIFIER = "onnxsim."
"""Beginning of the names under which the simplifier adds texts of its own to a model."""


class Source(Protocol):
    """A network with fixed shapes, ready to be lowered."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Inputs that a caller gives, in order."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""

    @property
    def integers(self) -> bool:
        """Whether products of 8-bit integers are kept."""

    @property
    def about(self) -> dict[str, Any]:
        """Facts that the file states about the model, by the names of
        `autosched_runtime.side_file.Description.about`."""

    def cleaned(self, target: Target) -> Any:
        """Returns the Relax module before layouts are chosen. Raises ModelRejected."""

    def save(self, path: Path) -> None:
        """Writes a file that `load` reads."""


@dataclass
class Ready:
    """A network that can be tuned, and the changes made to it."""

    source: Source
    format: str
    """Format of the file, and its version."""
    nodes_before: int
    nodes_after: int
    opset: int = 0
    """ONNX opset; 0 for files of other formats."""
    fixes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Changes of what the network accepts or computes, which are reported to the user."""


class OnnxSource:
    """An ONNX graph after all rewrites."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Inputs that a caller gives, in order."""
        return input_ranges.inputs(self.model)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return tuple(value.name for value in self.model.graph.output)

    @property
    def integers(self) -> bool:
        """Whether products of 8-bit integers are kept."""
        return any(map(stays, self.model.graph.node))

    @property
    def about(self) -> dict[str, Any]:
        """Facts that the file states about the model."""
        model = self.model
        found = {
            "producer_name": model.producer_name, "graph_name": model.graph.name, "domain": model.domain,
            "description": model.doc_string, "graph_description": model.graph.doc_string,
            "version": model.model_version,
            "metadata": {one.key: one.value for one in model.metadata_props if not one.key.startswith(SIMPLIFIER)},
        }  # fmt: skip
        return {name: value for name, value in found.items() if value}

    def cleaned(self, target: Target) -> IRModule:
        """Returns the Relax module before layouts are chosen. Raises ModelRejected."""
        instruction = dot_instructions.of_target(target) if self.integers else None
        module = onnx_import.cleaned(self.model, instruction, cores_of(target))
        if instruction is None:
            return module
        return packed_products.packed(module, instruction, tiles=tile_instructions.available(target))

    def save(self, path: Path) -> None:
        """Writes an ONNX file."""
        onnx.save(self.model, str(path))


class _Saved(Struct, frozen=True):
    """Contents of a file with a Relax network."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    module: str
    """The Relax module as TVM's JSON."""


class RelaxSource:
    """A Relax module, with the names of its inputs and outputs in the original file."""

    def __init__(self, module: IRModule, inputs: tuple[Tensor, ...], outputs: tuple[str, ...]) -> None:
        self._module, self._inputs, self._outputs = module, inputs, outputs

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Inputs that a caller gives, in order."""
        return self._inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return self._outputs

    integers = False

    @property
    def about(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def cleaned(self, target: Target) -> IRModule:
        """Returns the Relax module before layouts are chosen. Raises ModelRejected."""
        return onnx_import.clean(self._module)

    def save(self, path: Path) -> None:
        """Writes a JSON file."""
        saved = _Saved(self._inputs, self._outputs, str(tvm.ir.save_json(self._module)))
        path.write_bytes(msgspec.json.encode(saved))


def prepare(path: Path, shapes: Shapes, *, integers: bool = False) -> Ready:
    """Reads a model's file and rewrites it for tuning. `integers`: keep products of 8-bit integers in an ONNX file.
    Raises ModelRejected and RequestError."""
    kind = kind_of_file(path)
    if kind is FileKind.TFLITE:
        from autosched_tvm.compile import tflite_import

        return _imported(tflite_import.read(path, shapes))
    if kind is FileKind.TORCH:
        from autosched_tvm.compile import torch_import

        return _imported(torch_import.read(path, shapes))
    if kind is FileKind.TASKS:
        raise ModelRejected(f"{path.name} holds tasks of several networks, and no network")
    if kind is FileKind.TORCH_TRUNCATED:
        raise ModelRejected(f"{path.name} is a truncated PyTorch program. Copy or download it again")
    if kind is FileKind.TORCH_OTHER:
        raise ModelRejected(
            f"{path.name} holds weights, a pickled module or TorchScript, but no exported program. Export the module:"
            " torch.export.save(torch.export.export(module.eval(), (example,)), 'NAME.pt2')"
        )
    found = onnx_import.prepare(path, shapes, integers=integers)
    return Ready(
        OnnxSource(found.model), f"ONNX opset {found.opset}", found.nodes_before, found.nodes_after, found.opset,
        found.fixes, found.notes,
    )  # fmt: skip


def _imported(found: Imported) -> Ready:
    source = RelaxSource(found.module, found.inputs, found.outputs)
    return Ready(source, found.format, found.nodes, found.nodes, fixes=found.fixes, notes=found.fixes)


def load(path: Path) -> Source:
    """Loads a source that `Source.save` has written."""
    with path.open("rb") as file:
        first = file.read(1)
    if first != b"{":
        return OnnxSource(onnx.load(path))
    saved = msgspec.json.decode(path.read_bytes(), type=_Saved)
    return RelaxSource(tvm.ir.load_json(saved.module), saved.inputs, saved.outputs)
