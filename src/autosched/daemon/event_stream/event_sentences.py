"""Events as sentences, for the page. Logs and the monitor show the names of events and fields instead."""

from autosched import formatting
from autosched.core import actions, events
from autosched.daemon.event_stream.daemon_events import (
    CandidateBlocked,
    DaemonEvent,
    DeviceDisturbed,
    DeviceDrifts,
    DeviceSteady,
    DeviceUnreachable,
    Kept,
    LoopStalled,
    RecordsTagged,
)

STALLED = "the daemon stood still for"
"""Beginning of the sentence for a stall. The page shows only the last of several in a row."""


def sentence(event: DaemonEvent) -> str:
    """An event in one line; in the form of the logs if it has no sentence here."""
    match event.what:
        case events.JobSubmitted(job=job, spec=spec, owner=owner):
            return f"job {job} submitted{_by(owner)}: {spec.name}, backend {spec.backend}, on a {spec.device} device"
        case events.JobAltered(job=job, by=by, held=held) if held:
            return f"job {job} held{_by(by)}: {held}"
        case events.JobAltered(job=job, by=by, priority=priority, deadline_s=deadline_s):
            until = (
                f", to be done {formatting.duration(deadline_s)} after its submission" if deadline_s is not None else ""
            )
            return f"job {job} changed{_by(by)}: priority {priority}{until}"
        case events.JobCancelRequested(job=job, by=by):
            return f"job {job} is to be cancelled{_by(by)}"
        case actions.EndJob(job=job, state=state, failure=failure):
            return f"job {job} {state.value}" + (f": {failure.message}" if failure is not None else "")
        case events.ClientCutOff(job=job, reason=reason):
            return f"the client of job {job} is cut off: {reason}"
        case events.ClientLost(job=job, reason=reason):
            return f"the client of job {job} is gone: {reason}"
        case actions.RevokeStep(step=step, job=job, reason=reason):
            return f"step {step} of job {job} is killed: {reason}"
        case events.Paused(by=by, reason=reason):
            return f"paused{_by(by)}: {reason}" if reason else f"steps start again{_by(by)}"
        case events.PolicyChosen(policy=policy, goal=goal, by=by):
            return f"policy {policy}, goal {goal.value}, chosen{_by(by)}"
        case actions.ReplacePolicy(policy=policy, instead=instead, reason=reason):
            return f"{instead} decides instead of {policy}: {reason}"
        case events.UnitDrained(unit=unit, reason=reason, by=by):
            return f"{unit} drained{_by(by)}: {reason}"
        case events.UnitReturned(unit=unit, by=by):
            return f"{unit} gets steps again{_by(by)}"
        case events.BoardJoined(unit=unit):
            return f"board {unit.name} is there"
        case events.BoardGone(unit=name, reason=reason):
            return f"board {name} is gone: {reason}"
        case events.BoardForgotten(unit=name):
            return f"board {name} is not expected back"
        case events.HostJoined(host=host):
            return f"host {host} is there"
        case events.HostCutOff(host=host, reason=reason):
            return f"host {host} gets no steps: {reason}"
        case events.HostLeft(host=host, reason=reason):
            return f"host {host} has left: {reason}"
        case events.HostForgotten(host=host):
            return f"host {host} is not expected back"
        case events.ClientPlaced(job=job, host=None):
            return f"the client of job {job} waits: no host with such devices can be reached"
        case events.ClientPlaced(job=job, host=host):
            return f"the client of job {job} starts on {f'host {host}' if host else 'the own host of the daemon'}"
        case events.StagesFreed(job=job, stages=stages, divisible=divisible):
            moved = f"may also {' and '.join(stages)} on other hosts" if stages else "stays on its host"
            shared = f", and share {' and '.join(divisible)} over several units" if divisible else ""
            return f"job {job} {moved}{shared}"
        case DeviceDrifts(unit=unit, reason=reason):
            return f"{unit} is not as fast as it was: {reason}"
        case DeviceUnreachable(unit=unit, reason=reason):
            return f"{unit} cannot be reached: {reason}"
        case DeviceSteady(unit=unit):
            return f"{unit} is steady again"
        case DeviceDisturbed(unit=unit, share=share):
            return f"other programs used {formatting.share(share, 1.0)} of a core of {unit} during a step"
        case RecordsTagged(job=job, records=records, reason=reason):
            return f"{formatting.count(records, 'record')} of job {job} tagged: {reason}"
        case CandidateBlocked(number=number, reason=reason):
            return f"candidate {number} is not run any more: {reason}"
        case Kept(kind=kind, folder=folder):
            return f"{kind} made: {folder}"
        case LoopStalled(lag_s=lag_s, where=where):
            return f"{STALLED} {formatting.latency(lag_s)}" + (f" in {where}" if where else "")
    return event.text()


def _by(who: str) -> str:
    return f" by {who}" if who else ""
