"""Correct outputs of a model by ONNX Runtime: with its defaults, without optimisations, and perturbed by rounding.

The weights and inputs of a perturbed run differ by a few units in the last place, at random. By backward error analysis
(Higham, Accuracy and Stability of Numerical Algorithms, chapters 1 and 3), a floating-point sum of products is the
exact sum for such weights. The outputs of correct builds may therefore differ as much as those of perturbed runs.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from autosched_tvm.compile.frontend.dequantisation import RANGES
from autosched_tvm.evaluation.output_comparison import Expected, Scores
from autosched_tvm.evaluation.quantised_reference import fidelity, float_form
from autosched_tvm.rounding import EPSILON
from autosched_tvm.tensors import Array

PERTURBED_RUNS = 2
ROUNDED_RUNS = 5
"""Number of perturbed runs of a network that rounds between its operators, since its runs differ more."""
PERTURBATION = 4.0
"""Maximum relative perturbation, in multiples of the type's resolution."""
WEIGHTS_MIN = 9
"""Minimum number of elements of a constant that is perturbed. Smaller ones may be sizes and factors of shapes."""
MODEL_BYTES_MAX = 1_500_000_000
"""Maximum size in bytes of a model that is copied in memory to perturb it."""
_NOT_WEIGHTS = {"Resize", "Upsample", "Pad", "Clip", "Pow", "Range", "Tile", "Expand", "Reshape", "Slice", "OneHot"}
"""Operators whose constants determine shapes, or for which a whole number selects another function."""
_SCALES = {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul"}
"""Operators whose scales are weights, although they are single numbers."""
_ORDER_KEPT = {"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten"}
CHOOSING = {"ArgMax": 0, "ArgMin": 0, "TopK": 1}
"""Operators that choose indices, and the output that holds them."""


class Reference:
    """One model in ONNX Runtime, in several correct forms. Raises ONNX Runtime's exceptions for a model that it
    refuses."""

    def __init__(self, path: Path, threads: int, outputs: int | None = None, *, integers: bool = False) -> None:
        """`outputs`: number of the model's outputs to compute; None: all. `integers`: builds multiply 8-bit integers of
        a quantised model."""
        import onnxruntime

        self.version = str(onnxruntime.__version__)
        self.name = f"ONNX Runtime {self.version}"
        self.notes: list[str] = []
        """Notes about the results."""
        self._threads = threads
        self._scored: dict[int, tuple[str, int]] = {}
        """Name of the values from which an output's indices are chosen, and the axis, by number of the output."""
        self._levels: frozenset[int] = frozenset()
        """Numbers of the outputs that are levels of a quantised tensor."""
        model = onnx.load(path) if path.stat().st_size <= MODEL_BYTES_MAX else None
        self._path = path
        self._integers = integers
        self._form = float_form(model, integers=integers) if model is not None else None
        self._quantised = model if self._form is not None else None
        """The quantised model, until its float form is judged."""
        self._rounds = integers and self._form is not None
        """Whether builds round between operators."""
        self._open(path, self._form or model, rewritten=self._form is not None, outputs=outputs)

    def _open(self, path: Path, model: onnx.ModelProto | None, *, rewritten: bool, outputs: int | None) -> None:
        """Opens this model, which is `rewritten` from the file's, or the same; None: it is too large to change."""
        import onnxruntime

        whole = onnxruntime.GraphOptimizationLevel
        self._scored = scored_outputs(model) if model is not None else {}
        full = self._session(model.SerializeToString() if model and rewritten else str(path), whole.ORT_ENABLE_ALL)
        self.names = [output.name for output in full.get_outputs()][:outputs]
        self._first, self._model = full, model
        self._others: list[Any] | None = None
        if model is None:
            return
        kinds = [value.type.tensor_type.elem_type for value in model.graph.output]
        self._levels = frozenset(n for n, kind in enumerate(kinds) if rewritten and kind in RANGES)
        exposed = [name for name, _ in self._scored.values() if name not in self.names]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(exposed))
        if exposed:
            self._first = self._session(model.SerializeToString(), whole.ORT_ENABLE_ALL)

    def _other_sessions(self) -> list[Any]:
        """Returns the sessions without optimisations, and of perturbed models; none for a model that is too large."""
        import onnxruntime

        if self._others is not None:
            return self._others
        self._others, level = [], onnxruntime.GraphOptimizationLevel
        if self._model is not None:
            self._others.append(self._session(self._model.SerializeToString(), level.ORT_DISABLE_ALL))
            for seed in range(ROUNDED_RUNS if self._rounds else PERTURBED_RUNS):
                changed = perturbed_model(self._model, np.random.default_rng(seed))
                self._others.append(self._session(changed.SerializeToString(), level.ORT_ENABLE_BASIC))
        return self._others

    def expected(self, inputs: Mapping[str, Array], seed: int = 0, *, alone: bool = False) -> Expected:
        """Returns the outputs for one sample of inputs. `alone`: without other correct results."""
        if self._quantised is not None:
            self._judge_form(inputs)
        scores = [name for name, _ in self._scored.values()]
        wanted = list(dict.fromkeys([*self.names, *scores]))
        found = []
        for number, session in enumerate([self._first, *([] if alone else self._other_sessions())]):
            given = perturbed_inputs(inputs, np.random.default_rng([seed, number])) if number >= 2 else inputs
            known = {one.name for one in session.get_inputs()}
            values = session.run(wanted, {name: array for name, array in given.items() if name in known})
            found.append(dict(zip(wanted, map(np.asarray, values), strict=True)))
        first, others = found[0], found[1:]
        return Expected(
            outputs=tuple(first[name] for name in self.names),
            others=tuple(tuple(one[name] for name in self.names) for one in others if _alike(first, one)),
            scores={
                n: Scores(first[name], tuple(one[name] for one in others if _alike(first, one)), axis)
                for n, (name, axis) in self._scored.items()
                if n < len(self.names)
            },
            levels=self._levels, rounds=self._rounds,
        )  # fmt: skip

    def _judge_form(self, inputs: Mapping[str, Array]) -> None:
        """Returns to the quantised model if rounding does not explain the distance of its float form."""
        run = partial(self._run_once, inputs=inputs)
        found = fidelity(self._quantised, self._form, run, integers=self._integers)
        self.notes.append(found.note)
        if not found.explained:
            self._open(self._path, self._quantised, rewritten=False, outputs=len(self.names))
        self._quantised = self._form = None

    def _run_once(self, model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
        import onnxruntime

        session = self._session(model.SerializeToString(), onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
        known = {one.name for one in session.get_inputs()}
        given = {name: array for name, array in inputs.items() if name in known}
        return [np.asarray(value) for value in session.run(self.names, given)]

    def _session(self, model: str | bytes, level: Any) -> Any:
        """Returns a session of a model. A model changed here runs without graph optimisations where ONNX Runtime fails
        with them."""
        import onnxruntime

        none = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            return session_of(model, level, self._threads)
        except Exception:  # onnxruntime's errors have no common class
            if level == none or isinstance(model, str):
                raise
            return session_of(model, none, self._threads)


def session_of(model: str | bytes, level: Any, threads: int = 0) -> Any:
    """Returns a session of ONNX Runtime that computes exactly, and keeps no core busy while it waits. `level`: of its
    graph optimisations; `threads`: 0: one for each core."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = level
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.x64quantprecision", "1")  # avoids products that saturate
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _alike(first: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    """Returns whether all shapes are equal. They may depend on values, such as the number of boxes found."""
    return all(array.shape == other[name].shape for name, array in first.items())


def perturbed_inputs(inputs: Mapping[str, Array], generator: np.random.Generator) -> dict[str, Array]:
    """Returns the inputs with each float changed by a few units in the last place; integers stay."""
    return {name: _perturbed(array, generator) for name, array in inputs.items()}


def perturbed_model(model: onnx.ModelProto, generator: np.random.Generator) -> onnx.ModelProto:
    """Returns a copy of an ONNX model with its weights changed by a few units in the last place."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    weights, scales = _weights(graph.node)
    for tensor in graph.initializer:
        _perturb(tensor, generator, tensor.name in weights, tensor.name in scales)
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    _perturb(attribute.t, generator, node.output[0] in weights, node.output[0] in scales)
    return changed


def _weights(nodes: Iterable[Any]) -> tuple[set[str], set[str]]:
    """Returns the names of values that only arithmetic reads, and of those that are quantisation scales."""
    read: dict[str, set[str]] = {}
    for node in nodes:
        for name in node.input:
            read.setdefault(name, set()).add(node.op_type)
    weights = {name for name, users in read.items() if not users & _NOT_WEIGHTS}
    return weights, {name for name, users in read.items() if users and users <= _SCALES}


def _perturb(tensor: onnx.TensorProto, generator: np.random.Generator, weight: bool, scale: bool) -> None:
    if onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).name not in EPSILON:
        return
    array = numpy_helper.to_array(tensor)
    if scale or (weight and array.size >= WEIGHTS_MIN):
        tensor.CopyFrom(numpy_helper.from_array(_perturbed(array, generator), tensor.name))


def _perturbed(array: Array, generator: np.random.Generator) -> Array:
    name = array.dtype.name
    if name not in EPSILON:
        return array
    factor = 1 + PERTURBATION * EPSILON[name] * generator.uniform(-1, 1, array.shape)
    return np.asarray(array.astype("float64") * factor).astype(array.dtype)


def scored_outputs(model: onnx.ModelProto) -> dict[int, tuple[str, int]]:
    """Returns the outputs that are indices chosen among values: the values' name and the axis, by number of the
    output."""
    makers = {name: node for node in model.graph.node for name in node.output}
    found = {}
    for number, output in enumerate(model.graph.output):
        name = output.name
        while (node := makers.get(name)) is not None and node.op_type in _ORDER_KEPT:
            name = node.input[0]
        place = CHOOSING.get(node.op_type) if node is not None else None
        if node is not None and place is not None and node.output[place] == name:
            usual = -1 if node.op_type == "TopK" else 0
            axis = next((a.i for a in node.attribute if a.name == "axis"), usual)
            found[number] = node.input[0], axis
    return found
