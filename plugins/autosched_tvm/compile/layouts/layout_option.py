"""Layouts of convolutions that a user can request. Loads without NumPy."""

from enum import StrEnum


class LayoutOption(StrEnum):
    """Requested layout of all convolutions of a network."""

    KEEP = "keep"
    NCHW = "nchw"
    NHWC = "nhwc"
    NCHWC = "nchwc"
    AUTO = "auto"


UNTOUCHED = (LayoutOption.KEEP, LayoutOption.NCHW)
"""Layouts that leave an ONNX network unchanged: ONNX has NCHW only."""
