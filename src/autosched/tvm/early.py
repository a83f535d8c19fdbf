"""What a job on TVM does before its search is over: measures what the user would run otherwise, and builds."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from autosched.backend import Baseline, Evaluation, Lease
from autosched.errors import StepFailed
from autosched.measured.statistics import clearly_faster
from autosched.model import Record
from autosched.tvm import orders
from autosched.tvm.workers import Killed, WorkerError, Workers

log = logging.getLogger(__name__)
INPUT_SEED = 0


class EarlyBuilds:
    """A part of a session. What it takes from the rest of the session is declared here."""

    _workers: Workers
    _forms: Sequence[orders.Form]
    _tasks_dir: Path

    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        """Of the session."""
        raise NotImplementedError

    def evaluate(self, lease: Lease) -> Evaluation:
        """Of the session."""
        raise NotImplementedError

    def baseline(self, lease: Lease) -> Baseline | None:
        """Measure ONNX Runtime with the form of the model that suits it best; None where it cannot run the model."""
        from autosched.tvm.contest import Contest  # loads NumPy, which the search may not need

        prepared = str(self._tasks_dir / "prepared.onnx")
        try:
            inputs = self._workers.once(lease.cores, orders.PLAIN_INPUTS, prepared, timeout_s=lease.timeout_s)
            with Contest(self._workers, lease.cores, lease.timeout_s) as contest:
                rival = contest.rival(self._forms, inputs)
        except Killed:
            raise
        except WorkerError as error:
            raise StepFailed(f"baseline: {error}") from error
        if isinstance(rival, str):
            log.info("there is nothing to compare with: %s", rival)
            return None
        best = next(timing for timing in rival.forms if timing.name == rival.form)
        return Baseline("ONNX Runtime", rival.version, rival.form, best.median_s, best.low_s, best.high_s)

    def compile_early(self, records: Sequence[Record], lease: Lease) -> None:
        """Compile the network with the best schedules so far."""
        self.compile(records, lease)

    def evaluate_early(self, lease: Lease) -> Evaluation:
        """As at the end, but what is not clearly faster than ONNX Runtime is not published."""
        found = self.evaluate(lease)
        timings = {timing.name: timing for timing in found.timings}
        rival = timings.get("onnxruntime")
        faster = rival is not None and clearly_faster(timings["tuned"], rival)
        right = found.published == "tuned" and found.outputs_equal
        return found if faster and right else structs.replace(found, published="")


def plain_inputs(model: str) -> Mapping[str, Any]:
    """Inputs for a prepared model that ONNX Runtime can be timed with: normal numbers, and ones for whole numbers."""
    import numpy as np
    import onnx

    from autosched.tvm.frontend import graph

    generator = np.random.default_rng(INPUT_SEED)
    made = {}
    for value in graph.inputs_of(onnx.load(model)):
        shape = tuple(extent or 1 for extent in graph.dims_of(value) or ())
        kind = np.dtype(graph.dtype_of(value))
        numbers = generator.standard_normal(shape) if kind.kind == "f" else np.ones(shape)
        made[value.name] = numbers.astype(kind)
    return made
