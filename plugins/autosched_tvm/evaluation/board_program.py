"""Runs an ONNX file in ONNX Runtime on a board. Its text is sent there: it needs NumPy and ONNX Runtime, and nothing of
ours.

Each time it is run, in the process that serves the session, it reads order.json and writes answer.json. The engine
lives in a child of that process, which may crash, is stopped between two orders, and ends with the session.
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
"""Option of prctl."""


def serve(orders: int, answers: int) -> None:
    """Do what is ordered, until the orders end. In the child."""
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
            except Exception as error:  # it is told, and decided elsewhere
                answer = {"kind": type(error).__name__, "error": str(error)[:2_000]}
            os.write(answers, json.dumps(answer).encode() + b"\n")


def keep_only(*files: int) -> None:
    """Close all other files, as the connection of the session, and the pipe that tells the server of its end."""
    for name in os.listdir("/proc/self/fd"):
        if (number := int(name)) > 2 and number not in files:
            try:
                os.close(number)
            except OSError:
                continue  # it was that of the listing


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
        """The answer to an order, or how the process ended."""
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
    """Do what order.json says, and write answer.json."""
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
