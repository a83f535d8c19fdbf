"""Metrics of the daemon for Prometheus, computed on request from existing counters.

Labels are bounded: units and pools by the settings, stages and outcomes by the tally, causes by their type.
"""

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from autosched.daemon.devices.device_monitor import DeviceMonitor
from autosched.daemon.event_stream.counters import Counters, Histogram
from autosched.daemon.observe.usage import Usage
from autosched.daemon.runtime import Runtime
from autosched.model import UnitName
from autosched.version import __version__

Key = TypeVar("Key", bound=Sequence[str])
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Collector):
    """All metrics of one daemon, in a separate registry."""

    def __init__(self, runtime: Runtime, usage: Usage, tally: Counters, monitor: DeviceMonitor) -> None:
        self._runtime, self._usage, self._tally, self._monitor = runtime, usage, tally, monitor
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._registry.register(self)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Yield nothing before the first request."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        self._usage.look(self._runtime.clock())
        yield from self._resources()
        yield from self._steps()
        yield from self._jobs()
        yield from self._devices()
        yield from self._daemon()

    def _resources(self) -> Iterator[Metric]:
        state, now = self._runtime.state, self._runtime.clock()
        busy: Counts[tuple[UnitName, str]] = Counts(self._usage.busy_s)
        for step in state.steps.values():
            for unit in step.units:
                busy[unit, step.stage] += now - step.started_at  # type: ignore[assignment]
        stages = self._tally.known
        yield _counter(
            "autosched_resource_busy_seconds",
            "Seconds in which a step worked on the unit, by its stage.",
            ("resource", "stage"),
            {(unit, stages(stage)): seconds for (unit, stage), seconds in busy.items()},
        )
        yield _counter(
            "autosched_resource_idle_seconds",
            "Seconds in which nothing worked on the unit, by cause.",
            ("resource", "cause"),
            {(unit, cause.value): seconds for (unit, cause), seconds in self._usage.idle_s.items()},
        )
        waiting = {(name,): queue.waiting for name, queue in state.queues.items()}
        yield _gauge("autosched_queue_length", "Tasks that wait for a pool.", ("pool",), waiting)
        units = {(name,): len(queue.pool.units) for name, queue in state.queues.items()}
        yield _gauge("autosched_pool_units", "Units of a pool.", ("pool",), units)
        drained = {(name,): name in state.drained for name in state.slots}
        yield _gauge("autosched_resource_drained", "1 for a unit that gets no steps.", ("resource",), drained)

    def _steps(self) -> Iterator[Metric]:
        tally = self._tally
        yield _counter("autosched_steps", "Ended steps.", ("stage", "outcome"), tally.steps)
        yield _histogram("autosched_step_seconds", "How long done steps held their units.", "stage", tally.step_s)
        yield _histogram("autosched_step_wait_seconds", "How long tasks waited for their units.", "stage", tally.wait_s)
        trials = {(outcome,): count for outcome, count in tally.trials.items()}
        yield _counter("autosched_trials", "Trials by outcome: ok, or why they failed.", ("outcome",), trials)
        yield _counter("autosched_retakes", "Measurements that spend no budget.", (), {(): tally.retakes})
        yield _counter("autosched_disturbed_records", "Records found to be disturbed.", (), {(): tally.disturbed})
        known = self._runtime.state.estimates.calibration()
        yield _gauge("autosched_estimated_steps", "Ended steps that had an estimate.", (), {(): known.steps})
        if known.mape is not None:
            text = "Mean of |foreseen - taken| / taken over ended steps."
            yield _gauge("autosched_estimate_error_ratio", text, (), {(): known.mape})
        if known.coverage_p90 is not None:
            text = "Share of steps that ended before their 90 % quantile; 0.9 when all is well."
            yield _gauge("autosched_estimate_p90_coverage_ratio", text, (), {(): known.coverage_p90})

    def _jobs(self) -> Iterator[Metric]:
        state = self._runtime.state
        active = {("starting",): len(state.starting), ("running",): len(state.active) - len(state.starting)}
        yield _gauge("autosched_jobs_active", "Jobs that have not ended, by state.", ("state",), active)
        yield _gauge("autosched_jobs", "All jobs that the daemon knows.", (), {(): len(state.jobs)})
        ended = {(name,): count for name, count in self._tally.jobs_ended.items()}
        yield _counter("autosched_jobs_ended", "Jobs that ended in this life of the daemon.", ("state",), ended)

    def _devices(self) -> Iterator[Metric]:
        noise: dict[tuple[str, ...], float] = {}
        drifts: dict[tuple[str, ...], float] = {}
        for unit in self._runtime.state.slots:
            if (watch := self._monitor.watched(unit)) is not None:
                drifts[unit,] = watch.drifting_since is not None
                if watch.core.baseline_s is not None:
                    noise[unit, "core"], noise[unit, "memory"] = watch.core.noise, watch.memory.noise
        text = "Deviations of the sentinel up to this are noise."
        yield _gauge("autosched_measure_noise_ratio", text, ("resource", "of"), noise)
        text = "1 for a device that is slower than it was."
        yield _gauge("autosched_device_drifting", text, ("resource",), drifts)

    def _daemon(self) -> Iterator[Metric]:
        runtime, tally = self._runtime, self._tally
        names = {(name,): count for name, count in tally.events.items()}
        yield _counter("autosched_events", "Events on the daemon's stream, by name.", ("name",), names)
        text = "How much later than due the event loop came to a timer."
        yield _histogram("autosched_loop_lag_seconds", text, "", {"": tally.lag_s})
        text = "How long the database took to commit, its flush included."
        yield _histogram("autosched_journal_commit_seconds", text, "", {"": runtime.journal.commit_s})
        stalled = {(): bool(runtime.journal.stalled)}
        yield _gauge("autosched_journal_stalled", "1 while nothing can be written.", (), stalled)
        records = runtime.records
        if records.url:
            text = "Records and tags that this life of the daemon has repeated in the record store."
            yield _counter("autosched_record_store_writes", text, (), {(): records.stored})
            text = "Records and tags that the record store does not have yet."
            yield _gauge("autosched_record_store_behind", text, (), {(): records.behind})
            text = "0 while the record store cannot be used."
            yield _gauge("autosched_record_store_up", text, (), {(): not records.trouble})
        replaced = {(): bool(runtime.replaced)}
        yield _gauge("autosched_policy_replaced", "1 while another policy than the chosen one decides.", (), replaced)
        uptime_s = runtime.clock() - runtime.timeline.began_at
        yield _gauge("autosched_uptime_seconds", "Since the daemon started.", (), {(): uptime_s})
        info = {(__version__, runtime.scheduler.policy.name, runtime.state.goal.value): 1}
        yield _gauge("autosched_info", "What runs.", ("version", "policy", "goal"), info)


def _counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[Key, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[Key, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, float(value))
    return family


def _histogram(name: str, text: str, label: str, values: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=(label,) if label else ())
    for key, found in values.items():
        family.add_metric((key,) if label else (), found.cumulative(), found.sum)
    return family
