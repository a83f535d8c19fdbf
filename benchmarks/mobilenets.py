"""MobileNet V1 and V2 as files (Howard et al., 2017, table 1; Sandler et al., 2018, table 2), with random weights.

Normalisations are folded into the convolutions, as exporters do it for inference.
"""

from pathlib import Path

from resnet18 import Drawing

V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *5 * ((512, 1),), (1024, 2), (1024, 1))
"""Filters and stride of each block: a depthwise convolution and a 1x1 convolution."""
V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, filters, repetitions and first stride of each group of blocks."""


def write_v1(path: Path, seed: int = 0) -> Path:
    """Writes MobileNet V1."""
    draw = Drawing(seed)
    data, channels = _clipped(draw, draw.conv("image", 3, 32, 3, 2)), 32
    for filters, stride in V1:
        data = _clipped(draw, draw.depthwise(data, channels, 3, stride))
        data = _clipped(draw, draw.conv(data, channels, filters, 1, 1))
        channels = filters
    return draw.classifier(data, channels, path)


def write_v2(path: Path, seed: int = 0) -> Path:
    """Writes MobileNet V2."""
    draw = Drawing(seed)
    data, channels = _clipped(draw, draw.conv("image", 3, 32, 3, 2)), 32
    for expansion, filters, repetitions, first_stride in V2:
        for stride in (first_stride, *(repetitions - 1) * (1,)):
            inner, width = data, expansion * channels
            if expansion > 1:
                inner = _clipped(draw, draw.conv(inner, channels, width, 1, 1))
            inner = _clipped(draw, draw.depthwise(inner, width, 3, stride))
            inner = draw.conv(inner, width, filters, 1, 1, gain=1.0)
            data = draw.node("Add", inner, data) if stride == 1 and channels == filters else inner
            channels = filters
    return draw.classifier(_clipped(draw, draw.conv(data, channels, 1280, 1, 1)), 1280, path)


def _clipped(draw: Drawing, data: str) -> str:
    return draw.node("Clip", data, draw.number(0.0), draw.number(6.0))
