"""The network for which no single layout is the best."""

from pathlib import Path

import onnx
from pyramid import LAYERS, write


def test_it_is_sound_and_small_where_it_has_many_channels(tmp_path: Path) -> None:
    model = onnx.load(write(tmp_path / "pyramid.onnx"))
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    sizes = {value.name: [one.dim_value for one in value.type.tensor_type.shape.dim] for value in inferred.value_info}
    assert sizes["c0"] == [1, 4, 112, 112]
    assert sizes[f"c{len(LAYERS) - 1}"] == [1, 256, 7, 7]
