"""Changes to models of the zoo: random weights for a model without weights, open shapes for one that accepts any
size."""

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from autosched_tvm.compile.frontend.preparation import inputs_of


def with_open_shapes(data: bytes) -> bytes:
    """Returns the model without the sizes of its inputs, outputs and inner values."""
    model: Any = onnx.load_model_from_string(data)
    for value in (*inputs_of(model), *model.graph.output):
        for place, size in enumerate(value.type.tensor_type.shape.dim):
            size.dim_param = f"{value.name}_{place}"
    del model.graph.value_info[:]
    return bytes(model.SerializeToString(deterministic=True))


def with_random_weights(data: bytes, seed: int) -> bytes:
    """Returns a model with random normal weights, scaled by fan-in (He et al. 2015); normalisations keep the signal's
    size."""
    model: Any = onnx.load_model_from_string(data)
    graph = model.graph
    roles = {
        name: role
        for node in graph.node if node.op_type == "BatchNormalization"
        for role, name in zip(("scale", "bias", "mean", "variance"), node.input[1:5], strict=True)
    }  # fmt: skip
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    generator = np.random.default_rng(seed)
    nodes, weights, used = [], [], set()
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in shapes:
            nodes.append(node)
            continue
        shape = tuple(int(size) for size in shapes[node.input[0]])
        used.add(node.input[0])
        match roles.get(node.output[0]):
            case "scale":
                values = generator.uniform(0.2, 0.4, shape)
            case "variance":
                values = generator.uniform(0.5, 1.5, shape)
            case _ if len(shape) > 1:
                values = generator.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
            case _:
                values = generator.standard_normal(shape) * 0.01
        weights.append(numpy_helper.from_array(values.astype("float32"), node.output[0]))
    weights += [tensor for tensor in graph.initializer if tensor.name not in used]
    constants = used | {tensor.name for tensor in weights}
    inputs = [value for value in graph.input if value.name not in constants]
    for field, kept in ((graph.node, nodes), (graph.initializer, weights), (graph.input, inputs)):
        copies = [type(value).FromString(value.SerializeToString()) for value in kept]
        del field[:]
        field.extend(copies)
    model.ir_version = max(model.ir_version, 4)
    return bytes(model.SerializeToString(deterministic=True))
