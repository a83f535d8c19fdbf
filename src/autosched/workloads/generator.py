"""Generates loads with the variation of real tuning from a seed; instance files are made of them.

A step takes mean x (a factor of its job and stage) x (a factor of the step); all factors are log-normal with mean 1.
The means are those that the thesis measured.
"""

import math
import re
from random import Random

from msgspec import Struct

from autosched.errors import RequestError
from autosched.workloads.bounds import device_work_s, host_work_s
from autosched.workloads.instances import Instance, InstanceJob, Iteration

MEANS_S = (8.3, 39.5, 44.0)
"""Seconds of build, profile, and update with selection."""
JOBS_MAX = 100_000
UNITS_MAX = 1_000
SHORT_UPDATE = 0.1
"""Share of an update's time in a round in which the cost model is not trained."""


class Kind(Struct, frozen=True):
    """Variation of steps."""

    between_jobs: float
    """Standard deviation of the logarithm of a job's factor per stage."""
    within_job: float
    """Standard deviation of the logarithm of a step's factor."""
    iterations: tuple[int, int]
    """Minimum and maximum number of iterations."""
    iterations_spread: float | None = None
    """Log-normal around 10 with this spread; None: uniform in the range."""
    short_updates: float = 0.0
    """Share of updates that are short."""


KINDS = {
    "hom": Kind(0.0, 0.0, (10, 10)),
    "noisy": Kind(0.0, 0.1, (10, 10)),
    "het": Kind(0.5, 0.2, (5, 15)),
    "heavy": Kind(0.8, 0.3, (2, 40), iterations_spread=0.8, short_updates=0.25),
}


class Shape(Struct, frozen=True, kw_only=True):
    """Parameters of a random load. With `load`, jobs arrive one by one and keep the busiest resource busy for that
    share."""

    kind: str
    jobs: int
    hosts: int
    devices: int
    seed: int = 1
    longer: int = 1
    """Factor of the number of iterations."""
    load: float | None = None

    @property
    def name(self) -> str:
        """A name with all parameters: "het-N8-C2-M1-s1"."""
        longer = f"-K{self.longer}" if self.longer != 1 else ""
        load = f"-load{self.load:g}" if self.load is not None else ""
        return f"{self.kind}-N{self.jobs}-C{self.hosts}-M{self.devices}{longer}{load}-s{self.seed}"


def parse(text: str, *, jobs: int | None = None, longer: int = 1, load: float | None = None) -> Shape:
    """Parse `KIND:N-C-M` or `KIND:N-C-M:SEED`; N may be left out if `jobs` gives it. Raises RequestError."""
    match = re.fullmatch(r"([a-z]+):(?:(\d{1,9})-)?(\d{1,9})-(\d{1,9})(?::(\d{1,18}))?", text)
    if match is None or match[1] not in KINDS or (jobs is None and match[2] is None):
        raise RequestError(
            f"{text!r} is no load to generate; write KIND:JOBS-HOSTS-DEVICES[:SEED], for example het:8-2-1:3. Kinds:"
            f" {', '.join(KINDS)}"
        )
    shape = Shape(
        kind=match[1],
        jobs=int(match[2]) if jobs is None else jobs,
        hosts=int(match[3]),
        devices=int(match[4]),
        seed=int(match[5] or 1),
        longer=longer,
        load=load,
    )
    if not (0 < shape.jobs <= JOBS_MAX and 0 < shape.hosts <= UNITS_MAX and 0 < shape.devices <= UNITS_MAX):
        raise RequestError(
            f"{text!r}: there must be 1 to {JOBS_MAX} jobs, 1 to {UNITS_MAX} hosts and 1 to {UNITS_MAX} devices"
        )
    return shape


def generate(shape: Shape) -> Instance:
    """Generate the instance. Equal shapes give equal instances; `load` only changes the arrivals of jobs."""
    kind = KINDS[shape.kind]
    rng = Random(f"{shape.kind}/{shape.jobs}/{shape.hosts}/{shape.devices}/{shape.seed}")
    jobs = [
        InstanceJob(host=number % shape.hosts, iterations=_iterations(kind, rng, shape.longer))
        for number in range(shape.jobs)
    ]
    if shape.load is not None:
        jobs = _arriving(jobs, shape, shape.load)
    return Instance(name=shape.name, hosts=shape.hosts, devices=shape.devices, jobs=tuple(jobs))


def _iterations(kind: Kind, rng: Random, longer: int) -> tuple[Iteration, ...]:
    means = [mean * _factor(rng, kind.between_jobs) for mean in MEANS_S]
    count = _number(kind, rng) * longer
    return tuple(_iteration(kind, rng, means) for _ in range(count))


def _number(kind: Kind, rng: Random) -> int:
    low, high = kind.iterations
    if kind.iterations_spread is None:
        return rng.randint(low, high)
    return min(high, max(low, round(10 * _factor(rng, kind.iterations_spread))))


def _iteration(kind: Kind, rng: Random, means: list[float]) -> Iteration:
    build, profile, update = (mean * _factor(rng, kind.within_job) for mean in means)
    if kind.short_updates and rng.random() < kind.short_updates:
        update *= SHORT_UPDATE
    return _rounded(build), _rounded(profile), _rounded(update)


def _rounded(seconds: float) -> float:
    """Round to tenths of a second, at least one."""
    return max(0.1, round(seconds, 1))


def _factor(rng: Random, spread: float) -> float:
    """Log-normal with mean 1."""
    return math.exp(rng.gauss(-spread * spread / 2, spread)) if spread else 1.0


def _arriving(jobs: list[InstanceJob], shape: Shape, load: float) -> list[InstanceJob]:
    """Poisson arrivals: the mean time between two is a job's work on the busiest kind of unit, divided by the load.

    Each job goes to the next host in turn, so a host gets every C-th one.
    """
    on_hosts = sum(map(host_work_s, jobs)) / shape.hosts
    on_devices = sum(map(device_work_s, jobs)) / shape.devices
    gap_s = max(on_hosts, on_devices) / len(jobs) / load
    rng = Random(f"arrivals/{shape.name}")
    arriving, at = list[InstanceJob](), 0.0
    for job in jobs:
        at += rng.expovariate(1 / gap_s)
        arriving.append(InstanceJob(host=job.host, arrival_s=round(at, 1), iterations=job.iterations))
    return arriving
