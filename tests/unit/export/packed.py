"""A tuned network in a folder, as `autosched tune` leaves it."""

from pathlib import Path

import msgspec
import numpy as np

from autosched import report
from autosched.backend import Evaluation
from autosched_tvm.evaluation import kept_samples
from autosched_tvm.evaluation.output_comparison import Limits
from samples import evaluation, job_view, records, spans
from unit.autosched_runtime.small_networks import X, of_weights

MODEL = job_view().spec.model  # type: ignore[union-attr]


def tuned(folder: Path, measured: Evaluation | None = None, *, rows: int | None = None, megabytes: int = 1) -> Path:
    """Writes a network with weights, its samples and its report; returns the path of net.so.

    `measured`: the evaluation of the report; None: an ordinary one. `rows`: of the input; None: it has one dimension.
    `megabytes`: of the weights.
    """
    path = of_weights(folder / "net.so", megabytes, rows=rows)
    side = msgspec.json.decode(path.with_suffix(".json").read_bytes())
    side |= {"model": MODEL, "file": "net.onnx", "verified": "ONNX Runtime 1.31"}
    path.with_suffix(".json").write_bytes(msgspec.json.encode(side))
    x = X if rows is None else np.tile(X, (rows, 1))
    given = [{"x": x}, {"x": np.ones_like(x)}]
    kept_samples.keep(path.with_suffix(""), given, [[one["x"] + 1] for one in given], ["x"], [Limits(1e-6, 0.0)])
    told = report.gather(job_view(), evaluation() if measured is None else measured, records(), spans())
    (folder / "report.json").write_bytes(msgspec.json.encode(told))
    return path
