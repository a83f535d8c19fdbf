"""Converts an ONNX file to a Relax module, and reports what cannot be imported. Runs in a child process."""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import tvm
from onnx import ModelProto, NodeProto, helper
from tvm import relax

from autosched.errors import ModelRejected
from autosched_tvm.compile import gpu_scans, import_check, infinite_reductions, onnx_converters, targets
from autosched_tvm.compile.attention import expansion, fusion
from autosched_tvm.compile.frontend import preparation
from autosched_tvm.compile.frontend.preparation import Prepared, Shapes
from autosched_tvm.compile.integers import onnx_lookup
from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.compile.rules import gpu
from autosched_tvm.compile.rules.parallelisation import cores_of
from autosched_tvm.tvm_types import IRModule, Pass, Target
from autosched_tvm.worker_failures import gist

_IN_TVM_ONLY_BY_NAME = {"If", "Constant"}
_STANDARD = ("", "ai.onnx")
_DOMAINS = {"", "ai.onnx", "com.microsoft"}
"""Domains of the operators that TVM's converters implement. TVM looks at names alone: it takes any Add for the
standard's."""


def unsupported(nodes: Iterable[Any]) -> list[Any]:
    """Returns the nodes for which TVM's importer has no converter."""
    from tvm.relax.frontend.onnx import onnx_frontend

    with onnx_converters.recognisable():
        known = {name for name, converter in onnx_frontend._get_convert_map().items() if converter is not None}
    known |= _IN_TVM_ONLY_BY_NAME
    return [
        node for node in nodes if node.op_type not in known or node.domain not in _DOMAINS or _is_ignored_part(node)
    ]


def _is_ignored_part(node: NodeProto) -> bool:
    """Returns whether TVM's converter would ignore or misread a part of what the node computes."""
    part = _MISREAD.get(node.op_type)
    return part is not None and part(node)


def _has(name: str, *fine: Any) -> Callable[[Any], bool]:
    """Returns whether a node has an attribute with other values than those."""
    return lambda node: any(a.name == name and helper.get_attribute_value(a) not in fine for a in node.attribute)


def _outputs(count: int) -> Callable[[Any], bool]:
    """Returns whether a node has more outputs than that number."""
    return lambda node: any(node.output[count:])


_MISREAD: dict[str, Callable[[Any], bool]] = {
    "Attention": lambda node: node.domain in _STANDARD,  # it is com.microsoft's for TVM
    "LayerNormalization": _outputs(1),
    "BatchNormalization": _has("training_mode", 0),
    "Cosh": lambda _node: True,
    "MaxPool": _outputs(1),
    "NonMaxSuppression": lambda _node: True,
    "SequenceErase": lambda _node: True,
    "Sinh": lambda _node: True,
    "SpaceToDepth": _has("mode", b"DCR"),
    "ConvTranspose": lambda node: _has("auto_pad", b"NOTSET", b"VALID")(node) or _has("output_shape")(node),
    "Dropout": _outputs(1),
    "IsInf": lambda node: _has("detect_positive", 1)(node) or _has("detect_negative", 1)(node),
    "Resize": lambda node: (
        _has("antialias", 0)(node) or _has("axes")(node) or _has("keep_aspect_ratio_policy", b"stretch")(node)
    ),
}
"""Parts of operators that TVM's converters ignore or misread: such a node is rewritten or refused."""


def prepare(path: Path, shapes: Shapes, *, integers: bool = False) -> Prepared:
    """Returns the checked, simplified and rewritten ONNX model. `integers`: keep products of 8-bit integers. Raises
    ModelRejected."""
    prepared = preparation.prepare(path, shapes, unsupported, integers=integers)
    import_check.check_types(prepared.model)
    return prepared


def network(model: ModelProto, target: Target) -> IRModule:
    """Returns the fused module of an ONNX model, in the model's layouts. Raises ModelRejected."""
    return fused(cleaned(model, cores=cores_of(target)), target)


def cleaned(model: ModelProto, instruction: DotInstruction | None = None, cores: int = 1) -> IRModule:
    """Returns the module of an ONNX model before layouts are chosen. `instruction`: the CPU's dot instruction for 8-bit
    integers. `cores`: number of cores of the target. Raises ModelRejected."""
    return clean(_from_onnx(model, instruction, cores))


def clean(module: IRModule) -> IRModule:
    """Returns an imported module with its constants folded, ready for a choice of layouts. Raises ModelRejected."""
    passes = relax.transform
    steps = (
        expansion.expansion(),
        passes.FoldBatchnormToConv2D(),
        passes.DecomposeOpsForInference(),
        passes.CanonicalizeBindings(),
        passes.FoldConstant(),
    )
    return _passed(module, steps)


def fused(module: Any, target: Any) -> Any:
    """Returns a cleaned module with operators lowered to kernels. Raises ModelRejected."""
    passes = relax.transform
    steps = (
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        passes.LegalizeOps({"relax.take": onnx_lookup.legalised, **infinite_reductions.LEGALISED}),
        passes.AnnotateTIROpPattern(),
        onnx_lookup.fusable(target),
        passes.FoldConstant(),
        passes.FuseOps(),
        passes.FuseTIR(),
    )
    on_gpu = targets.is_gpu(target)
    with target:
        if on_gpu:
            module = gpu_scans.as_reductions(module)
        made = _passed(fusion.fused(module, target), steps)
    if on_gpu:
        gpu.refuse_kernels_of_cpus(made)
    return made


def _passed(module: IRModule, steps: Sequence[Pass]) -> IRModule:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tvm.transform.Sequential(list(steps))(module)
    except Exception as error:  # whichever pass failed, the message can only name the model
        said = f"TVM cannot lower the model: {gist(error)[: import_check.SAID_MAX].rstrip('.')}"
        raise ModelRejected(f"{said}. Export it with another opset, or report it with the model") from error


def _from_onnx(model: ModelProto, instruction: DotInstruction | None, cores: int) -> IRModule:
    from tvm.relax.frontend.onnx import from_onnx

    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with onnx_converters.recognisable(instruction, cores), import_check.compared(model):
                return from_onnx(model, keep_params_in_input=False)
    except ModelRejected:
        raise
    except Exception as error:  # of the importer itself, in many classes
        raise ModelRejected(
            f"TVM cannot import the model: {gist(error)[: import_check.SAID_MAX]}; {import_check.OTHERWISE}"
        ) from error
