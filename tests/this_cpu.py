"""The target of the machine that runs the tests: a CPU by its name may have more features than are granted."""

from typing import Any

import tvm

from autosched_tvm.compile import targets


def attributes(**more: Any) -> dict[str, Any]:
    """Its attributes, with some replaced or added: `num_cores` is "num-cores"."""
    return targets.of_this_machine() | {name.replace("_", "-"): value for name, value in more.items()}


def target(**more: Any) -> Any:
    """The target for one core, as TVM's object."""
    return tvm.target.Target(attributes(**({"num_cores": 1} | more)))
