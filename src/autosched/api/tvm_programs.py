"""Runs programs of autosched_tvm in separate processes, because TVM may crash, hang or be missing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.process import json_command

INSTALL = "TVM is not installed here. Install it with:  pip install 'autosched[tvm]'"
MISSING = dict.fromkeys(("tvm", "onnx", "numpy"), INSTALL)
"""Package that a program cannot import -> advice."""
INSTALLATION_CHECK = "autosched_tvm.commands.installation_check"
BOARD_SERVER = "autosched_tvm.commands.board_server"
MODEL_CHECK = "autosched_tvm.commands.model_check"
MODEL_CUT = "autosched_tvm.commands.model_cut"
MODEL_WHOLE = "autosched_tvm.commands.model_whole"
MODULE_COMMAND = "autosched_tvm.commands.module_command"
RANKER_TRAINING = "autosched_tvm.commands.ranker_training"
TASK_COLLECTION = "autosched_tvm.commands.task_collection"


def on_cores(cores: Sequence[int]) -> list[str]:
    """The option of a program that keeps it to some cores; without cores, it runs on any."""
    return ["--cores", ",".join(map(str, cores))] if cores else []


def on_gpu(uuid: str) -> list[str]:
    """The option of a program that runs a network on a GPU; empty: on the cores of this machine."""
    return ["--gpu", uuid] if uuid else []


async def ask(
    program: str, words: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None,
    on_object: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The JSON object that a program printed last.

    Raises the error that it reports; RequestError if it died, was killed after `timeout_s` seconds, or TVM is not
    installed. `environment`: variables beside those of this process. `on_object`: called with each JSON object as it is
    printed.
    """
    return await json_command.ask(
        program, words, timeout_s=timeout_s, missing=MISSING, environment=environment, on_object=on_object
    )
