"""The cases of the backend suite in the installed onnx package: models with inputs and expected outputs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from msgspec import Struct
from onnx import numpy_helper
from onnx.backend.test import runner
from onnx.backend.test.loader import load_model_tests

OPSET = "opset"
"""Beginning of the names of cases that are not of the suite."""
KINDS = ("simple", "pytorch-converted", "pytorch-operator")
"""Kinds of cases that lie in files. Those of the kind "node" are computed."""
TYPES = onnx.TensorProto.DataType
FEW_BITS = re.compile("FLOAT[468]E|FLOAT8|E8M0|U?INT[24]$")
RARE = {"BFLOAT16", "DOUBLE", "INT16", "UINT16", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128"}
TRAINING = re.compile("training|^test_(adagrad|adam|momentum|nesterov|gradient|nllloss|sce)")


class Case(Struct, frozen=True):
    """One model with samples of its inputs and outputs, in the order of the graph's."""

    name: str
    model: bytes
    samples: list[tuple[list[Any], list[Any]]]
    relative: float
    absolute: float

    @property
    def family(self) -> str:
        """Kind of networks that have what the case tests; "deployed" is what services run."""
        if self.name.startswith(OPSET):
            return "opsets 7 to 24"
        return _family(self.name, onnx.load_model_from_string(self.model))


def _family(name: str, model: Any) -> str:
    domains = {node.domain for node in model.graph.node}
    values = [*model.graph.input, *model.graph.output]
    kinds = {TYPES.Name(value.type.tensor_type.elem_type) for value in values if value.type.HasField("tensor_type")}
    extents = [d.dim_value for v in values for d in v.type.tensor_type.shape.dim if d.HasField("dim_value")]
    if domains & {"ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"} or TRAINING.search(name):
        return "training or preview"
    if "ai.onnx.ml" in domains:
        return "classical"
    if any(value.type.HasField("sequence_type") or value.type.HasField("optional_type") for value in values):
        return "sequence"
    if "STRING" in kinds:
        return "string"
    if any(FEW_BITS.search(kind) for kind in kinds):
        return "few bits"
    if kinds & RARE:
        return "rare type"
    return "size 0" if 0 in extents else "deployed"


def all_cases() -> Iterator[Case]:
    """All cases, each name once."""
    seen = set()
    for one in load_model_tests(kind="node"):
        seen.add(one.name)
        samples = [(_plain(given), _plain(wanted)) for given, wanted in one.data_sets]
        yield Case(one.name, one.model.SerializeToString(), samples, one.rtol, one.atol)
    for kind in KINDS:
        for one in load_model_tests(kind=kind):
            if one.name not in seen and one.model_dir is not None:
                seen.add(one.name)
                yield _read(one, Path(one.model_dir))


def _plain(values: Any) -> list[Any]:
    return [_array(runner._normalize_tensor(value)) for value in values]


def _array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value


def _read(one: Any, folder: Path) -> Case:
    model = onnx.load(str(folder / "model.onnx"))
    samples = []
    for data in sorted(folder.glob("test_data_set_*")):
        sets = []
        for word, values in (("input", model.graph.input), ("output", model.graph.output)):
            count = len(list(data.glob(f"{word}_*.pb")))
            sets.append([_value(data / f"{word}_{n}.pb", values[n].type) for n in range(count)])
        samples.append((sets[0], sets[1]))
    return Case(one.name, model.SerializeToString(), samples, one.rtol, one.atol)


def _value(path: Path, kind: Any) -> Any:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))
