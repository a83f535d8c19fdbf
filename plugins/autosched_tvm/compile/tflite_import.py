"""Imports TFLite files. Runs in a child process."""

from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.tflite import tflite_frontend

from autosched.errors import ModelRejected, RequestError
from autosched_tvm.compile import relax_import
from autosched_tvm.compile.frontend.dequantisation import dequantised
from autosched_tvm.compile.frontend.preparation import Shapes
from autosched_tvm.compile.relax_import import Imported
from autosched_tvm.tvm_types import Expr

_FLOAT32, _INT32, _UINT8, _INT64, _INT16, _INT8 = 0, 2, 3, 4, 7, 9
"""Element types, as TFLite's schema numbers them."""
_LIMITS = {_UINT8: (0, 255), _INT8: (-128, 127), _INT16: (-32768, 32767)}
_BUILTIN_CODE_FIELD = 10
"""Offset of OperatorCode.builtin_code in a FlatBuffers table of fields."""
INSTALL = "Install its reader: pip install 'autosched[tflite]'"


def read(path: Path, shapes: Shapes) -> Imported:
    """Returns the network in a file. Raises ModelRejected and RequestError."""
    try:
        import tflite
    except ImportError as error:
        raise ModelRejected(f"{path.name} is a TFLite file; the package tflite is not installed. {INSTALL}") from error
    with relax_import.quietly(path.name):
        model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
        graph = model.Subgraphs(0)
        inputs = [graph.Tensors(int(i)) for i in graph.InputsAsNumpy()]
        names = tuple(tensor.Name().decode() for tensor in inputs)
        outputs = tuple(graph.Tensors(int(i)).Name().decode() for i in graph.OutputsAsNumpy())
        _check_shapes({n: tuple(map(int, t.ShapeAsNumpy())) for n, t in zip(names, inputs, strict=True)}, shapes)
        converters: list[Converter] = []

        def converter(*arguments: Any) -> Converter:
            converters.append(Converter(*arguments))
            return converters[0]

        module = tflite_frontend.from_tflite(model, op_converter=converter)
        module["main"] = module["main"].without_attr("params")
    fixes = [
        f"unknown dimensions of {name!r} fixed as in the file"
        for name, tensor in zip(names, inputs, strict=True)
        if np.any(tensor.ShapeSignatureAsNumpy() == -1)
    ]
    if count := converters[0].quantised:
        fixes.append(
            f"quantised operators made float ({count}): weights dequantised, activations bounded but not rounded"
        )
    return Imported(
        module, relax_import.tensors(module, names), outputs,
        f"TFLite schema {model.Version()}", graph.OperatorsLength(), fixes,
    )  # fmt: skip


def _check_shapes(there: dict[str, tuple[int, ...]], shapes: Shapes) -> None:
    """Checks `shapes` against the file. A TFLite file fixes the shapes of all values, so no others are possible. Raises
    RequestError."""
    for name, wanted in shapes.items():
        if name not in there:
            raise RequestError(f"the model has no input {name!r}; its inputs are: {', '.join(map(repr, there))}")
        if there[name] != tuple(wanted):
            numbers = ",".join(map(str, there[name]))
            raise RequestError(
                f"--shape {name}={','.join(map(str, wanted))} does not fit input {name!r}, which is {numbers}."
                " Shapes are fixed when a TFLite file is written: convert the model again with this shape"
            )


class _Real:
    """A quantised tensor of the file, presented as float32; all other properties are the file's."""

    def __init__(self, tensor: Any) -> None:
        self.raw = tensor
        parameters = tensor.Quantization()
        self.scale = np.asarray(parameters.ScaleAsNumpy(), "float32")
        self.zero = np.asarray(parameters.ZeroPointAsNumpy())
        self.axis = int(parameters.QuantizedDimension())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def Type(self) -> int:  # as the schema's own accessor is named
        """Element type, as the schema numbers it."""
        return _FLOAT32

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Minimum and maximum of the quantised type; None for int32 sums."""
        limits = _LIMITS.get(self.raw.Type())
        if limits is None or self.scale.size != 1:
            return None
        low, high = ((limit - int(self.zero.flat[0])) * float(self.scale.flat[0]) for limit in limits)
        return low, high


class Converter(tflite_frontend.OperatorConverter):  # type: ignore[misc] # TVM has no types
    """TVM's operator converter with corrections, and with float tensors in place of quantised ones.

    Weights are dequantised; activations are clipped to the range of their type and not rounded. The converters of float
    operators therefore serve quantised operators too, and float operators with quantised weights.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.quantised = 0
        """Number of activations that are quantised in the file."""

    def get_op_code_str(self, op: Any) -> str:
        """Returns an operator's name. The package tflite ignores small numbers in the newer of the two fields."""
        from flatbuffers import number_types

        table = self.model.OperatorCodes(op.OpcodeIndex())._tab
        offset = table.Offset(_BUILTIN_CODE_FIELD)
        number = table.Get(number_types.Int32Flags, offset + table.Pos) if offset else 0
        name = self.builtin_op_code.get(number) if number else None
        return str(super().get_op_code_str(op) if name is None or name == "CUSTOM" else name)

    def get_tensors(self, tensors_idx_list: Any) -> list[Any]:
        """Returns the tensors with these indices, the quantised ones as float32."""
        found = []
        for index in self._indices_or_empty(tensors_idx_list):
            if index < 0:
                found.append(tflite_frontend.TensorWrapper(index, 0, 0))
                continue
            tensor = self.subgraph.Tensors(index)
            real = _Real(tensor) if _is_quantised(tensor) else tensor
            found.append(tflite_frontend.TensorWrapper(index, real, self.model.Buffers(tensor.Buffer())))
        return found

    def get_tensor_value(self, tensor_wrapper: Any, is_sparse: bool = False) -> Any:
        """Returns a constant's value, in float32 if it is quantised."""
        if not is_sparse and self.is_prefetched(tensor_wrapper.tensor_idx):
            return self.get_prefetched_node(tensor_wrapper.tensor_idx)
        real = tensor_wrapper.tensor
        if not isinstance(real, _Real):
            return super().get_tensor_value(tensor_wrapper, is_sparse)
        raw = tflite_frontend.TensorWrapper(tensor_wrapper.tensor_idx, real.raw, tensor_wrapper.buffer)
        return dequantised(super().get_tensor_value(raw, is_sparse), real.scale, real.zero, real.axis)

    def convert_op_to_relax(self) -> None:
        """Converts all operators, then rounds the outputs that have a quantised type."""
        for name, tensor in self._quantised(self.subgraph.InputsAsNumpy()):
            levels = relax.op.astype(self.exp_tab.get_expr(name), "float32")
            real = relax.op.multiply(
                relax.op.subtract(levels, relax.const(float(tensor.zero.flat[0]))), relax.const(tensor.scale.flat[0])
            )
            self.exp_tab.set_expr(name, self.bb.emit(real), force_override=True)
        original: dict[str, Any] = dict(self.convert_map)
        self.convert_map: dict[str, Any] = {name: self._bounding(convert) for name, convert in original.items()}
        super().convert_op_to_relax()
        for name, tensor in self._quantised(self.subgraph.OutputsAsNumpy()):
            levels = relax.op.round(relax.op.divide(self.exp_tab.get_expr(name), relax.const(tensor.scale.flat[0])))
            levels = relax.op.add(levels, relax.const(np.float32(tensor.zero.flat[0])))
            low, high = _LIMITS[tensor.raw.Type()]
            kind = self.get_tensor_type_str(tensor.raw.Type())
            whole = relax.op.astype(relax.op.clip(levels, low, high), kind)
            self.exp_tab.set_expr(name, self.bb.emit(whole), force_override=True)

    def _bounding(self, convert: Any) -> Any:
        """Returns a converter whose results are clipped to the quantised range in the file."""

        def converted(op: Any) -> Expr:
            value = convert(op=op)
            outputs = self.get_output_tensors(op)
            if value is None or len(outputs) != 1 or not isinstance(outputs[0].tensor, _Real):
                return value
            self.quantised += 1
            bounds = outputs[0].tensor.bounds
            return value if bounds is None else relax.op.clip(self.bb.normalize(value), *bounds)

        return converted

    def _quantised(self, indices: Any) -> list[tuple[str, _Real]]:
        """Returns the quantised ones of these tensors, with their names in TVM's table."""
        wrappers = self.get_tensors(indices)
        return [
            (tflite_frontend.get_tensor_name(self.subgraph, one.tensor_idx), one.tensor)
            for one in wrappers
            if isinstance(one.tensor, _Real)
        ]

    def convert_quantize(self, op: Any) -> Any:
        """QUANTIZE, from float or from another scale: the real numbers stay."""
        return self.get_tensor_expr(self.get_input_tensors(op)[0])

    def convert_dequantize(self, op: Any) -> Any:
        """DEQUANTIZE: the real numbers stay; 16-bit weights become float32."""
        (value,) = self.get_input_tensors(op)
        if self.has_expr(value.tensor_idx):
            return relax.op.astype(self.get_tensor_expr(value), "float32")
        return self.exp_tab.new_const(np.asarray(self.get_tensor_value(value), "float32"), dtype="float32")

    def convert_expand_dims(self, op: Any) -> Any:
        """EXPAND_DIMS. TVM's own converter passes an argument that Relax does not accept."""
        value, axis = self.get_input_tensors(op)
        return relax.op.expand_dims(self.get_tensor_expr(value), int(self.get_tensor_value(axis).flat[0]))

    def convert_reshape(self, op: Any) -> Any:
        """RESHAPE to the result's shape in the file. TVM's own converter requires a constant shape."""
        value = self.get_input_tensors(op)[0]
        (result,) = self.get_output_tensors(op)
        return relax.op.reshape(self.get_tensor_expr(value), [int(size) for size in result.tensor.ShapeAsNumpy()])


def _is_quantised(tensor: Any) -> bool:
    parameters = tensor.Quantization()
    return parameters is not None and tensor.Type() in (*_LIMITS, _INT32, _INT64) and int(parameters.ScaleLength()) > 0
