"""Rates collected tasks by the expected benefit of further trials: share of the networks' time, and expected gain.
Pure.

The share of a task is the mean, over all networks, of its part of an inference; each model counts once, in however many
sizes it was collected. The gain of further trials falls with those made: after a job's default number it is half of the
first ones' gain. Trials of slow kernels take longer, so tasks are ordered by gain per second. Lorien (Yu et al., SoCC
2021, section 3.1) tunes tasks in the order in which they were collected.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from msgspec import Struct

from autosched.recordstore import shapes
from autosched.recordstore.collected import Knowledge, Use
from autosched.recordstore.rows import Workload

FLOPS_GUESS = 1e10
"""Assumed floating-point operations per second of a task without any measurement."""
GAIN_GUESS = 0.5
"""Assumed share of a task's time that a search saves, without any measurement."""
TRIALS_OF_HALF = 14
"""Trials after which the expected gain has halved: the default of a job for each task."""
TRIAL_S, TRIAL_RUNS = 0.15, 5
"""Seconds of a trial besides its runs, and runs of the kernel in a trial."""
UNKNOWN = Knowledge(None, None, 0)


class Rated(Struct, frozen=True):
    """A task with its usefulness."""

    workload: Workload
    networks: int
    """Number of networks that use it; each size counts."""
    models: int
    calls: int
    """Number of calls in one inference of each of them."""
    latency_s: float
    """Best known or expected latency in seconds."""
    known: Knowledge
    share: float
    """Mean share of the time of an inference, over all models."""
    gain: float
    """Share of its own time that further trials are expected to save."""

    @property
    def useful(self) -> float:
        """Expected saving of time, as a share of all models."""
        return self.share * self.gain

    @property
    def trial_s(self) -> float:
        """Expected seconds of a trial."""
        return TRIAL_S + TRIAL_RUNS * self.latency_s


def rate(uses: Sequence[Use], known: Mapping[str, Knowledge]) -> list[Rated]:
    """All tasks, by descending saving per second of trials. `known`: by hash of the workload."""
    workloads = {use.workload.hash: use.workload for use in uses}
    latency_s = _latencies_s(workloads, known)
    of_network: defaultdict[int, float] = defaultdict(float)
    sizes: defaultdict[str, set[int]] = defaultdict(set)
    for use in uses:
        of_network[use.network] += use.weight * latency_s[use.workload.hash]
        sizes[use.model].add(use.network)
    share: defaultdict[str, float] = defaultdict(float)
    networks: defaultdict[str, set[int]] = defaultdict(set)
    models: defaultdict[str, set[str]] = defaultdict(set)
    calls: defaultdict[str, int] = defaultdict(int)
    for use in uses:
        hashed = use.workload.hash
        part = use.weight * latency_s[hashed] / (of_network[use.network] or 1.0)
        share[hashed] += part / len(sizes[use.model]) / len(sizes)
        networks[hashed].add(use.network)
        models[hashed].add(use.model)
        calls[hashed] += use.weight
    saved = _saved(known)
    rated = [
        Rated(
            workload=workload, networks=len(networks[hashed]), models=len(models[hashed]), calls=calls[hashed],
            latency_s=latency_s[hashed], known=known.get(hashed, UNKNOWN), share=share[hashed],
            gain=saved * TRIALS_OF_HALF / (TRIALS_OF_HALF + known.get(hashed, UNKNOWN).tried),
        )
        for hashed, workload in workloads.items()
    ]  # fmt: skip
    return sorted(rated, key=lambda one: (-one.useful / one.trial_s, one.workload.hash))


def _latencies_s(workloads: Mapping[str, Workload], known: Mapping[str, Knowledge]) -> dict[str, float]:
    """The best known latency of each workload, otherwise estimated from the speed of measured ones: of the same
    operator, or of all."""
    speeds: defaultdict[str, list[float]] = defaultdict(list)
    for hashed, one in known.items():
        if hashed in workloads and one.best_s and workloads[hashed].flops:
            speeds[_operator(workloads[hashed])].append(workloads[hashed].flops / one.best_s)
    every = [speed for some in speeds.values() for speed in some]
    usual = median(every) if every else FLOPS_GUESS
    found = {}
    for hashed, workload in workloads.items():
        best_s = known.get(hashed, UNKNOWN).best_s
        of_operator = speeds.get(_operator(workload))
        found[hashed] = best_s or workload.flops / (median(of_operator) if of_operator else usual)
    return found


def _operator(workload: Workload) -> str:
    return shapes.parse(workload.shape).operator


def _saved(known: Mapping[str, Knowledge]) -> float:
    """Mean share of its time that a search has saved of a task."""
    saved = [1 - one.best_s / one.untuned_s for one in known.values() if one.best_s and one.untuned_s]
    return fmean(saved) if saved and fmean(saved) > 0 else GAIN_GUESS
