"""Checks whether a network gives the same outputs for inputs that are padded to the next of its sizes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from autosched.runtime_errors import in_words
from autosched_runtime.network_file import manifest_of
from autosched_runtime.network_of_shapes import NetworkOfShapes, loaded
from autosched_runtime.padding import Padding, possible
from autosched_runtime.samples import Sample
from autosched_tvm.compile.side_file import SideFile
from autosched_tvm.evaluation.onnx_reference import session_of
from autosched_tvm.generated_inputs import random_inputs
from autosched_tvm.tensors import Kind
from autosched_tvm.worker_failures import gist

UNKNOWN = 0.0, 1e-4
"""Absolute and relative limit of the outputs of networks without samples."""


def checked(file: Path, model: Path, least: int) -> Padding | str:
    """Returns the padding by which the networks in a file take all sizes from the least one; or why none does.

    Inputs of sizes between those of the networks run padded, and as they are in ONNX Runtime on the model. Masks are
    padded with zeros, or with ones if that is wrong. Raises RequestError for a file that cannot be read.
    """
    with in_words():
        network = loaded(file)
        if not isinstance(network, NetworkOfShapes):
            return "there is one size alone"
        descriptions = [one.description for one in network.networks]
        rule = possible(descriptions, least)
        if isinstance(rule, str):
            return rule
        target = descriptions[0].target
        sides = [msgspec.convert(one, SideFile) for one in manifest_of(file)["variants"] if one["target"] == target]
        masks = frozenset(one.name for one in sides[0].inputs if one.kind is Kind.MASK or one.dtype == "bool")
        try:
            import onnxruntime

            level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
            session = session_of(str(model), level, network.threads)
            if not (why := _differs(network, session, rule, sides)):
                return rule
            other = dataclasses.replace(rule, ones=masks & rule.axes.keys())
            return other if other.ones and not _differs(network, session, other, sides) else why
        except Exception as error:  # ONNX Runtime raises errors of its own
            return f"ONNX Runtime cannot run the model with other sizes: {gist(error)}"


def _differs(network: NetworkOfShapes, session: Any, rule: Padding, sides: Sequence[SideFile]) -> str:
    """Returns which output differs, in words; empty if none does."""
    network.padding = rule
    limits = next((one.limits for one in network.samples()), [UNKNOWN] * len(sides[0].outputs))
    for number, side in enumerate(sides):
        for size in _between(rule, number):
            exact = [
                msgspec.structs.replace(tensor, shape=rule.resized(tensor.name, tensor.shape, size))
                for tensor in side.inputs
            ]
            inputs = random_inputs(exact, size)
            expected = Sample([], session.run(None, dict(inputs)), limits)
            for output, apart, allowed in expected.differing(network.run(inputs)):
                return (
                    f"output {side.outputs[output].name!r} of inputs of size {size}, padded to {rule.sizes[number]},"
                    f" differs by {apart:.3g}; allowed {allowed:.3g}"
                )
    return ""


def _between(rule: Padding, number: int) -> list[int]:
    """Sizes that the network of a number serves besides its own: the smallest, and one in the middle."""
    first, own = rule.sizes[number - 1] + 1 if number else rule.least, rule.sizes[number]
    return sorted({first, (first + own) // 2} - {own})
