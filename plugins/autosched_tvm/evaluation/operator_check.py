"""Runs the operators of an imported ONNX network one by one, untuned, and compares them with ONNX Runtime: before the
first trial, within seconds.

Equal nodes are run once. All of them become one network of nodes side by side, so that TVM compiles it in one piece;
its inputs are the values that the network itself computes for a sample. What is large is left to the verification.
"""

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from msgspec import Struct
from onnx import helper, numpy_helper
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from autosched.errors import ModelRejected
from autosched_tvm.compile import lowering, model_sources, network_compiler, onnx_import
from autosched_tvm.compile.frontend import old_operators, shape_inference
from autosched_tvm.compile.frontend.refused_operators import OperatorRejected, name_of
from autosched_tvm.evaluation import input_samples, isolated_run, model_forms, standard_reference, verification
from autosched_tvm.evaluation.onnx_reference import CHOOSING, session_of
from autosched_tvm.evaluation.output_comparison import Expected, Scores, Tolerances
from autosched_tvm.evaluation.verification_messages import Request
from autosched_tvm.rounding import EPSILON
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import Target

ELEMENTS_MAX = 4_000_000
"""Maximum number of values that a node reads and writes, so that the check takes seconds."""
CONSTANT_BYTES_MAX = 4_000_000
"""Maximum size of the constants of a node."""
NODES_MAX = 150
"""Maximum number of different nodes that are run; more take too long to compile."""
PRODUCTS_MAX = 5_000_000
"""Maximum number of multiplications of a node, which is not tuned yet."""
CHECK_S = 20.0
"""Seconds after which no further nodes are run, where TVM or ONNX Runtime refuses some of them."""
LEFT_OUT = frozenset({
    "LSTM", "GRU", "RNN", "If", "Loop", "Scan", "Constant", "RandomNormal", "RandomUniform", "RandomNormalLike",
    "RandomUniformLike", "Bernoulli", "Multinomial", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear",
    "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "QAttention", "MatMulNBits", "QLinearConv", "QLinearMatMul",
})  # fmt: skip
"""Operators that are not run alone: recurrent layers, which take long untuned; subgraphs; random numbers; quantisation,
whose operators are compiled together with others, and round inside otherwise than in ONNX Runtime."""
JUMPS_OR_RANDOM = frozenset({
    "QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger",
    "DequantizeLinear", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli",
    "Multinomial", "MatMulNBits", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "QAttention", "Dropout", "ArgMax",
    "ArgMin", "TopK", "NonMaxSuppression", "NonZero", "Round", "Floor", "Ceil", "Sign", "Equal", "Greater", "Less",
    "GreaterOrEqual", "LessOrEqual", "IsNaN", "IsInf", "Mod",
})  # fmt: skip
"""Operators whose result jumps where its input changes by rounding, or is random."""
SAID_MAX = 300
"""Maximum characters of a reason of ONNX Runtime."""
_SOURCE = re.compile(r"^\S+:\d+ ")
"""A place in a source file, before a message."""
SHARES = {"float16": 2e-2, "bfloat16": 1e-1}
SHARE = 1e-3
"""Maximum error of an output, as a share of its largest value, by type and for all others."""
Run = Callable[[Any, Mapping[str, Array], Sequence[str] | None], list[Array]]
"""An engine: runs a network in memory and returns its outputs, or those of the given names."""


class Wrong(Struct, frozen=True):
    """A node whose result in TVM is another one."""

    operator: str
    node: onnx.NodeProto
    said: str


class _Case(Struct, frozen=True):
    """One node to run, under names of its own."""

    original: onnx.NodeProto
    node: onnx.NodeProto
    inputs: dict[str, str]
    """The network's value by the case's input."""
    constants: tuple[onnx.TensorProto]


def check(model: str, prepared: str, target: str, samples: str = "", unverified: bool = False) -> None:
    """Compares a prepared network with its model's file, and runs its operators. Raises ModelRejected, which names the
    first wrong one; or where no other engine can run the network, unless it may stay `unverified`. Does nothing for
    files of other formats."""
    aim = tvm.target.Target(json.loads(target))
    check_source(Path(model), model_sources.load(Path(prepared)), aim, samples, unverified=unverified)


def check_source(
    model: Path, source: model_sources.Source, target: Target, samples: str = "", *, unverified: bool = False
) -> None:
    """Does the same for a network in memory."""
    if not isinstance(source, model_sources.OnnxSource):
        return
    made = input_samples.of(source.inputs, samples)
    inputs = made[0]
    original, expected, run = _reference(model, source, made, given=bool(samples), unverified=unverified)
    if expected is not None and (apart := _rewritten(original, source.model, inputs, expected, run)):
        raise ModelRejected(
            f"the network computes something else after its operators were rewritten for TVM: {apart}. That is a fault"
            " of the import, and not of your model: please report it with the model"
        )
    if wrong := find(source.model, inputs, target, run):
        first = wrong[0]
        others = ", ".join(dict.fromkeys(one.operator for one in wrong[1:]))
        more = f"; so are {others}" if others else ""
        raise OperatorRejected(
            f"operator {first.operator} (node {name_of(first.node)}) is computed wrongly: {first.said}{more}. That is a"
            " fault of the import, and not of your model: export that layer in another way", source.model.graph,
            [one.node for one in wrong],
        )  # fmt: skip


def _reference(
    path: Path, source: model_sources.OnnxSource, samples: Sequence[Mapping[str, Array]], *, given: bool,
    unverified: bool,
) -> tuple[Any, list[Array] | None, Run]:  # fmt: skip
    """The network of a file, its outputs for the first sample, and the engine: ONNX Runtime, or the standard's
    reference implementation where that cannot load or run it. There are no outputs where ONNX Runtime loads another
    form of it only, or where no engine runs it and it may stay `unverified`. Raises ModelRejected where it may not; and
    for a sample that the engines refuse, which a user has `given` or which was generated."""
    loaded = False
    try:
        original = old_operators.raised(onnx.load(str(path)))
        session = _session(original)
        loaded = True
        first, *_ = [_outputs(session, inputs, None) for inputs in samples]
        return original, first, _by_runtime
    except Exception as error:  # the errors of ONNX Runtime have no common class
        found = _by_other(path, source, samples[0])
        if loaded and not isinstance(found, list):
            whose = "the given inputs" if given else "the inputs that were generated for this network"
            raise ModelRejected(
                f"ONNX Runtime refuses {whose}: {_reason(error)}. Give valid ones: --inputs FILE.npz, written with"
                " numpy.savez(FILE, **{INPUT: ARRAY})"
            ) from error
        if isinstance(found, str) and not unverified:
            raise ModelRejected(
                f"no engine can check the outputs of this network: {found}. Export it for an older opset, without the"
                " operator that is named here; or take what comes, unchecked: --unverified"
            ) from error
        return onnx.load(str(path)), *((found, _by_standard) if isinstance(found, list) else (None, _by_runtime))


def _by_other(path: Path, source: model_sources.OnnxSource, inputs: Mapping[str, Array]) -> list[Array] | str | None:
    """The outputs of a file that ONNX Runtime cannot load, by the standard's reference implementation. None if ONNX
    Runtime loads another form of it, as the verification does later; the reason if no engine can run it."""
    with tempfile.TemporaryDirectory(prefix="autosched-forms-") as folder:
        forms = model_forms.write(str(path), {tensor.name: tensor.shape for tensor in source.inputs}, folder)
        request = Request(tuple(form.path for form in forms), threads=0)
        found = verification.reference_of(request, inputs, integers=False)
        if isinstance(found, standard_reference.StandardReference):
            return list(found.expected(inputs, alone=True).outputs)
    return found if isinstance(found, str) else None


def _reason(error: Exception) -> str:
    """The reason in a message of ONNX Runtime, which begins with places in its sources."""
    said = str(error).strip().rpartition("Status Message: ")[2].rpartition(" was false. ")[2]
    return (_SOURCE.sub("", said).strip().rstrip(".") or type(error).__name__)[:SAID_MAX]


def _rewritten(
    original: onnx.ModelProto, model: onnx.ModelProto, inputs: Mapping[str, Array], before: Sequence[Array], run: Run
) -> str:
    """Says how the outputs of a prepared network differ from those of the original; empty if they do not, and for
    networks whose outputs may, since rounding changes a choice, or since they are random."""
    if any(node.op_type in JUMPS_OR_RANDOM for one in (original, model) for node in one.graph.node):
        return ""
    try:
        pairs = list(zip(model.graph.output, before, run(model, inputs, None), strict=True))
    except Exception:  # the errors of ONNX Runtime have no common class
        return ""
    for output, right, own in pairs:
        if right.dtype.name in EPSILON and (said := _difference(right, own, {})):
            return said.replace("its result", f"output {output.name!r}")
    return ""


def find(model: onnx.ModelProto, inputs: Mapping[str, Array], target: Target, run: Run) -> list[Wrong]:
    """Returns the nodes of a network that TVM computes otherwise than the engine `run`, in the network's order."""
    cases = list(_cases(model))
    values = _values(model, inputs, sorted({name for case in cases for name in case.inputs.values()}), run)
    if values is None:
        return []
    cases = [case for case in cases if all(name in values for name in case.inputs.values())]
    return _wrong(cases, values, model, target, run, time.monotonic() + CHECK_S)


def _wrong(
    cases: Sequence[_Case], values: Mapping[str, Array], model: onnx.ModelProto, target: Target, run: Run, until: float
) -> list[Wrong]:
    """Runs cases together. Where TVM or the engine refuses one of them, halves the cases."""
    if not cases or time.monotonic() > until:
        return []
    together, given = _network(cases, values, model)
    try:
        expected = run(together, given, None)
        got = _by_tvm(together, given, target)
    except Exception:  # both raise errors of many classes; the compilation of the whole network says what is wrong
        half = len(cases) // 2
        halves = (cases[:half], cases[half:]) if half else ()
        return [wrong for part in halves for wrong in _wrong(part, values, model, target, run, until)]
    named = [(case, name) for case in cases for name in case.node.output if name]
    found: dict[str, Wrong] = {}
    for (case, name), right, own in zip(named, expected, got, strict=True):
        if case.node.name not in found and (said := _difference(right, own, _scores(case, values, name))):
            found[case.node.name] = Wrong(case.original.op_type, case.original, said)
    return list(found.values())


def _scores(case: _Case, values: Mapping[str, Array], output: str) -> dict[int, Scores]:
    """The values among which a node chooses the indices of an output: those that tie may be chosen, too."""
    place = CHOOSING.get(case.node.op_type)
    if place is None or case.node.output[place] != output or case.node.input[0] not in case.inputs:
        return {}
    usual = -1 if case.node.op_type == "TopK" else 0
    axis = next((int(a.i) for a in case.node.attribute if a.name == "axis"), usual)
    return {0: Scores(values[case.inputs[case.node.input[0]]], (), axis)}


def _difference(right: Array, own: Array, scores: Mapping[int, Scores]) -> str:
    """Says how an output differs; empty if it does not. Where numbers are not finite, only their place counts."""
    if right.dtype.name in EPSILON and not np.isfinite(right).all():
        return ""  # kernels may differ there: see `special_values`
    share = SHARES.get(right.dtype.name, SHARE)
    check = Tolerances([Expected((right,), scores=scores)], ["its result"], share).check([[own]])
    if check.equal or check.difference is None:
        return ""
    at = check.difference
    return f"{at.output}{list(at.index) if at.index else ''} is {at.got}, and not {at.expected}"


def _cases(model: onnx.ModelProto) -> Iterator[_Case]:
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    known = {value.name: value.type.tensor_type for value in shape_inference.values(model)}
    seen: set[bytes] = set()
    for node in model.graph.node:
        if len(seen) >= NODES_MAX:
            return
        computed = [name for name in node.input if name and name not in constants]
        own = [constants[name] for name in node.input if name in constants]
        sizes = [_elements(known.get(name)) for name in (*computed, *(name for name in node.output if name))]
        if node.op_type in LEFT_OUT or not computed or None in sizes or sum(filter(None, sizes)) > ELEMENTS_MAX:
            continue
        if sum(tensor.ByteSize() for tensor in own) > CONSTANT_BYTES_MAX:
            continue
        if _products(node, known, constants) > PRODUCTS_MAX:
            continue
        if (key := _key(node, known, constants)) in seen:
            continue
        seen.add(key)
        yield _renamed(node, len(seen), constants)


def _elements(tensor: Any) -> int | None:
    if tensor is None or not tensor.HasField("shape"):
        return None
    dims = [d.dim_value for d in tensor.shape.dim]
    return None if any(size <= 0 for size in dims) else int(np.prod(dims, dtype=np.int64))


def _products(node: onnx.NodeProto, known: Mapping[str, Any], constants: Mapping[str, onnx.TensorProto]) -> int:
    """The number of multiplications of a product or convolution; 0 for other nodes, which have few for each value."""
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum"):
        return 0
    outputs = _elements(known.get(node.output[0])) or 0
    weights = constants.get(node.input[1])
    shape = list(weights.dims) if weights is not None else [d.dim_value for d in known[node.input[1]].shape.dim]
    return outputs * max(1, int(np.prod(shape, dtype=np.int64)) // max(1, min(shape, default=1)))


def _key(node: onnx.NodeProto, known: Mapping[str, Any], constants: Mapping[str, onnx.TensorProto]) -> bytes:
    """Key of equal nodes: they compute the same of inputs of the same types and shapes. Of large constants, only those
    count."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.ClearField("name")
    copy.ClearField("doc_string")
    parts = []
    for name in node.input:
        if name in constants:
            tensor = constants[name]
            few = int(np.prod(tensor.dims, dtype=np.int64)) <= 16
            parts.append(numpy_helper.to_array(tensor).tobytes() if few else repr(list(tensor.dims)).encode())
        elif name:
            parts.append(known[name].SerializeToString())
    copy.input[:], copy.output[:] = [], ["y" if name else "" for name in node.output]
    return b"|".join([bytes(copy.SerializeToString()), *parts])


def _renamed(node: onnx.NodeProto, number: int, constants: Mapping[str, onnx.TensorProto]) -> _Case:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = f"case_{number}"
    inputs: dict[str, str] = {}
    own = {}
    for place, name in enumerate(node.input):
        if not name:
            continue
        fresh = f"case_{number}_in_{place}"
        copy.input[place] = fresh
        if name in constants:
            tensor = onnx.TensorProto()
            tensor.CopyFrom(constants[name])
            tensor.name = fresh
            own[fresh] = tensor
        else:
            inputs[fresh] = name
    copy.output[:] = [f"case_{number}_out_{place}" if name else "" for place, name in enumerate(node.output)]
    return _Case(node, copy, inputs, tuple(own.values()))


def _network(
    cases: Sequence[_Case], values: Mapping[str, Array], model: onnx.ModelProto
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The network of all cases, and its inputs."""
    given = {fresh: values[name] for case in cases for fresh, name in case.inputs.items()}
    kinds = {fresh: helper.np_dtype_to_tensor_dtype(array.dtype) for fresh, array in given.items()}
    graph = helper.make_graph(
        [case.node for case in cases], "cases",
        [helper.make_tensor_value_info(fresh, kinds[fresh], array.shape) for fresh, array in given.items()],
        [onnx.ValueInfoProto(name=name) for case in cases for name in case.node.output if name],
        [tensor for case in cases for tensor in case.constants],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    known = {value.name: value for value in shape_inference.values(made) if value.type.WhichOneof("value")}
    for value in made.graph.output:
        if value.name in known:
            value.CopyFrom(known[value.name])
    return made, given


def _values(
    model: onnx.ModelProto, inputs: Mapping[str, Array], wanted: Sequence[str], run: Run
) -> dict[str, Array] | None:
    """The values of a network for a sample; None if the engine cannot run it."""
    there = {value.name for value in model.graph.input}
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    names = [name for name in wanted if name not in there]
    del exposed.graph.output[:]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        found = dict(zip(names, run(exposed, inputs, names), strict=True)) if names else {}
    except Exception:  # its errors have no common class
        return None
    return {name: array for name, array in (*inputs.items(), *found.items()) if isinstance(array, np.ndarray)}


def _by_runtime(model: onnx.ModelProto, inputs: Mapping[str, Array], names: Sequence[str] | None) -> list[Array]:
    return _outputs(_session(model), inputs, names)


def _by_standard(model: onnx.ModelProto, inputs: Mapping[str, Array], names: Sequence[str] | None) -> list[Array]:
    """Runs a network in the standard's reference implementation, where ONNX Runtime cannot."""
    try:
        return _by_runtime(model, inputs, names)
    except Exception:  # the errors of ONNX Runtime have no common class
        with tempfile.TemporaryDirectory(prefix="autosched-standard-") as folder:
            path = Path(folder) / "part.onnx"
            onnx.save(model, str(path))
            return isolated_run.outputs(path, [inputs], standard_reference.__name__)[0]


def _session(model: onnx.ModelProto) -> Any:
    import onnxruntime

    return session_of(model.SerializeToString(), onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)


def _outputs(session: Any, inputs: Mapping[str, Array], names: Sequence[str] | None) -> list[Array]:
    known = {one.name for one in session.get_inputs()}
    return list(session.run(names, {name: array for name, array in inputs.items() if name in known}))


def _quick(target: Target) -> Target:
    """The target with code that is compiled fast."""
    return tvm.target.Target({**dict(target.export()), "opt-level": 0})


def _by_tvm(model: Any, inputs: Mapping[str, Array], target: Any) -> list[Array]:
    module = onnx_import.network(model, target)
    target = _quick(target)
    with target, ms.database.MemoryDatabase(), tvm.transform.PassContext(opt_level=2):
        pipeline = network_compiler.untuned_pipeline()
        built = relax.build(module, target=target, relax_pipeline=pipeline, tir_pipeline=lowering.install())
    run = relax.VirtualMachine(built, tvm.cpu())["main"]
    made = run(*(tvm.runtime.tensor(np.asarray(inputs[value.name], order="C")) for value in model.graph.input))
    return [one.numpy() for one in ([made] if hasattr(made, "numpy") else made)]
