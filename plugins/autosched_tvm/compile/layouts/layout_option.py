"""The layouts of convolutions that a user may ask for. Loads without NumPy."""

from enum import StrEnum


class LayoutOption(StrEnum):
    """Wanted layout of all convolutions of a network."""

    KEEP = "keep"
    NCHW = "nchw"
    NHWC = "nhwc"
    NCHWC = "nchwc"
    AUTO = "auto"


UNTOUCHED = (LayoutOption.KEEP, LayoutOption.NCHW)
"""The same: ONNX knows no other layout."""
