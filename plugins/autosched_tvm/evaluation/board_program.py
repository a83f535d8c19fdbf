"""Runs an ONNX file in ONNX Runtime on a board. The board receives this file, which needs NumPy and ONNX Runtime only.

Each run, in the process that serves the session, reads order.json and writes answer.json. The engine lives in a child
process, which may crash, is stopped between orders, and ends with the session.
"""

import json
import os
import select
import signal
import sys
import time
from typing import Any

ORDER, ANSWER = "order.json", "answer.json"
PARENT_DEATH_SIGNAL = 1
"""Number of prctl's option PR_SET_PDEATHSIG."""


def serve(orders: int, answers: int) -> None:
    """Executes orders until there are no more. Runs in the child."""
    session: Any = None
    binding: Any = None
    names: list[str] = []
    with os.fdopen(orders) as lines:
        for line in lines:
            order = json.loads(line)
            try:
                import numpy
                import onnxruntime

                answer: dict[str, Any] = {}
                if order["do"] == "load":
                    options = onnxruntime.SessionOptions()
                    options.intra_op_num_threads, options.inter_op_num_threads = order["threads"], 1
                    options.log_severity_level = 4
                    session = onnxruntime.InferenceSession(order["model"], options, providers=["CPUExecutionProvider"])
                    names = [output.name for output in session.get_outputs()]
                    answer["version"] = onnxruntime.__version__
                elif order["do"] == "run":
                    numpy.savez("outputs.npz", *session.run(names, dict(numpy.load("inputs.npz"))))
                elif order["do"] == "bind":
                    binding = session.io_binding()
                    for name, array in dict(numpy.load("inputs.npz")).items():
                        binding.bind_cpu_input(name, array)
                    for name in names:
                        binding.bind_output(name)
                else:
                    for _ in range(order["warm"]):
                        session.run_with_iobinding(binding)
                    started = time.perf_counter()
                    for _ in range(order["number"]):
                        session.run_with_iobinding(binding)
                    answer["latency_s"] = (time.perf_counter() - started) / order["number"]
            except Exception as error:  # reported to the client, which decides
                answer = {"kind": type(error).__name__, "error": str(error)[:2_000]}
            os.write(answers, json.dumps(answer).encode() + b"\n")


def keep_only(*files: int) -> None:
    """Closes all other files, such as the session's connection and the pipe that reports the end of the server."""
    for name in os.listdir("/proc/self/fd"):
        if (number := int(name)) > 2 and number not in files:
            try:
                os.close(number)
            except OSError:
                continue  # the file descriptor of the listing itself


class Child:
    """The process that holds the engine."""

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(orders)
            os.close(answers)
            return
        try:
            import ctypes

            ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
            keep_only(orders, answers)
            serve(orders, answers)
        finally:
            os._exit(0)

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer to an order, or how the process ended."""
        os.kill(self.pid, signal.SIGCONT)
        os.write(self._orders, json.dumps(order).encode() + b"\n")
        said, until = b"", time.monotonic() + order["limit_s"]
        while not said.endswith(b"\n"):
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._answers, 65_536) if ready else b""
            if not piece:
                how = "it crashed" if ready else f"it gave no answer within {order['limit_s']:.0f} s"
                return {"kind": "Died", "error": how}
            said += piece
        os.kill(self.pid, signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(said)
        return answer


def obey() -> None:
    """Executes order.json and writes answer.json."""
    with open(ORDER) as file:
        order = json.load(file)
    children: dict[int, Child] = sys.__dict__.setdefault("_autosched_children", {})
    number = order["engine"]
    try:
        if order["do"] == "end":
            if number in children:
                os.kill(children.pop(number).pid, signal.SIGKILL)
            answer: dict[str, Any] = {}
        else:
            if number not in children:
                children[number] = Child()
            answer = children[number].ask(order)
    except OSError as error:
        answer = {"kind": "Died", "error": f"it has ended: {error}"}
    with open(ANSWER, "w") as file:
        json.dump(answer, file)


if __name__ == "autosched_board":
    obey()
