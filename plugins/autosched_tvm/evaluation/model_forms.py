"""Forms of a model for ONNX Runtime: as it is, with fixed shapes, simplified.

The fastest form depends on the model: with fixed shapes ONNX Runtime may take half the time, and a simplified model may
lose operators that ONNX Runtime recognises. Runs in a child process, since the simplifier may crash.
"""

from collections.abc import Mapping
from pathlib import Path

import onnx

from autosched_tvm.compile.frontend import old_operators, preparation
from autosched_tvm.compile.frontend.model_file import FileKind, kind_of_file
from autosched_tvm.worker_messages import AS_IT_IS, FIXED, SIMPLIFIED, Form

ENGINES = {FileKind.TFLITE: "litert", FileKind.TORCH: "pytorch"}
"""Engine by file format other than ONNX. These have one form only."""


def write_like(model: str, prepared: str, folder: str) -> list[Form]:
    """Writes the forms with the input shapes of a prepared model; see `write`."""
    if (engine := ENGINES.get(kind_of_file(Path(model)))) is not None:
        return [Form(AS_IT_IS, model, engine)]
    inputs = preparation.inputs_of(onnx.load(prepared, load_external_data=False))
    return write(
        model, {value.name: tuple(dim or 1 for dim in preparation.dims_of(value) or ()) for value in inputs}, folder
    )


def write(model: str, shapes: Mapping[str, tuple[int, ...]], folder: str) -> list[Form]:
    """Writes each form that differs from the model to a folder. The model itself comes first, at its own path."""
    if (engine := ENGINES.get(kind_of_file(Path(model)))) is not None:
        return [Form(AS_IT_IS, model, engine)]
    forms = [Form(AS_IT_IS, model)]
    original = onnx.load(model)
    fixed = with_shapes(old_operators.raised(original), shapes)  # ONNX Runtime has no operators before opset 7
    if fixed.SerializeToString() != original.SerializeToString():
        forms.append(_saved(fixed, FIXED, folder))
    if (simple := _simplified(fixed)) is not None:
        forms.append(_saved(simple, SIMPLIFIED, folder))
    return forms


def with_shapes(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
    """Returns a copy whose inputs have these shapes; dimensions of the same name are replaced everywhere."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    known: dict[str, int] = {}
    unfixed = False
    for value in preparation.inputs_of(fixed):
        shape, dims = shapes.get(value.name), value.type.tensor_type.shape.dim
        if shape is None or len(shape) != len(dims):
            continue
        for dim, size in zip(dims, shape, strict=True):
            if dim.dim_value != size:
                unfixed = True
                if dim.dim_param:
                    known[dim.dim_param] = size
                dim.dim_value = size
    if not unfixed:
        return fixed
    for value in fixed.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in known:
                dim.dim_value = known[dim.dim_param]
    # the file's shapes may contradict the fixed ones; ONNX Runtime infers them when it loads the model
    del fixed.graph.value_info[:]
    return fixed


def _simplified(model: onnx.ModelProto) -> onnx.ModelProto | None:
    import onnxsim

    try:
        simple, _ = onnxsim.simplify(model)
    except Exception:  # this form is left out; the import has reported that the simplifier fails
        return None
    return simple if list(simple.graph.node) != list(model.graph.node) else None


def _saved(model: onnx.ModelProto, name: str, folder: str) -> Form:
    path = Path(folder) / f"{name.replace(' ', '-')}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return Form(name, str(path))
