"""Which rule of early stopping holds for tasks that had no part in choosing it: `python benchmarks/early_stopping.py`.

Nothing is measured: each rule is played, round by round, on what the searches of `results/search_stopping.json`
measured. A rule is chosen as the one that saves most and loses no more than a margin on some tasks. How wide the margin
may be is chosen too: rules that all of these tasks but one choose must keep the bar on that one, on average. All this
is done without the task by which a rule is judged. What was measured counts as it was measured first, so that a lucky
measurement which a shorter search misses is a loss. Of the rule that there is, the best candidates were also measured
again, longer.
"""

import itertools
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autosched_tvm.tuning import early_stopping
from autosched_tvm.tuning.early_stopping import EarlyStopping

TABLE = Path(__file__).parent / "results" / "search_stopping.json"
"""Of `search_quality.py --methods "autotvm xgb" "autotvm stopping"`."""
METHOD, STOPPING, TRIALS, ROUND = "autotvm xgb", "autotvm stopping", 64, 8
LOSS_BAR = 0.01
MARGINS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
"""Of the loss that is allowed, a rule may lose so much on the tasks by which it is chosen."""
PATIENCE = 32
"""What `early_stopping` is set to for 64 trials."""


class Rule(NamedTuple):
    """As Plateau takes it."""

    patience: int
    progress: float
    near: float
    several: int
    haste: int


class Outcome(NamedTuple):
    """Of a rule on one task, means over its seeds."""

    saved: float
    """Share of the trials."""
    loss: float
    """Logarithm of the best latency over that of the whole search."""


NOW = Rule(PATIENCE, early_stopping.PROGRESS, early_stopping.NEAR, early_stopping.SEVERAL, early_stopping.HASTE)
GRID = [
    Rule(*choice)
    for choice in itertools.product(
        (32, 40, 48), (0.0, 0.005, 0.01, 0.02), (0.01, 0.015, 0.02, 0.03), (4, 6, 8, 10, 12), (2, 3, 5)
    )
]
Played = NDArray[np.float64]
"""By rule and task, an Outcome."""
Runs = Mapping[str, Sequence[Sequence[float | None]]]
"""By task, of each seed the latencies in the order of the trials, in seconds; None for a failure."""


def main() -> None:
    """Play all rules, tell as JSON."""
    runs = json.loads(TABLE.read_text())["runs"]
    print(json.dumps({**judged(known(runs)), "again": again(runs)}))


def known(runs: Iterable[Mapping[str, Any]]) -> Runs:
    """What is there to play on."""
    found: defaultdict[str, list[Sequence[float | None]]] = defaultdict(list)
    for run in runs:
        if run["method"] == METHOD and len(run["latencies_s"]) == TRIALS:
            found[run["task"]].append(run["latencies_s"])
    return found


def again(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By task, what searches lost that were stopped, as their best and those of whole ones were measured again."""
    best_s = {(run["method"], run["task"], run["seed"]): run["again_s"][str(TRIALS)] for run in runs}
    lost: defaultdict[str, list[float]] = defaultdict(list)
    for (method, task, seed), own_s in best_s.items():
        if method == STOPPING and (whole_s := best_s.get((METHOD, task, seed))):
            lost[task].append(math.log(own_s / whole_s))
    return {task: statistics.mean(values) for task, values in lost.items()}


def judged(runs: Runs) -> dict[str, Any]:
    """The rule that there is, the one that all tasks would choose, and what the others would choose for each."""
    rules, tasks = sorted({*GRID, NOW}), list(runs)
    played = np.array([[outcome(rule, own) for own in runs.values()] for rule in rules])
    every = list(range(len(tasks)))
    held_out = {}
    for at, task in enumerate(tasks):
        rule = chosen(played, others := every[:at] + every[at + 1 :], margin_of(played, others))
        held_out[task] = [*played[rule, at].tolist(), rules[rule]]
    now = dict(zip(tasks, played[rules.index(NOW)].tolist(), strict=True))
    best = rules[chosen(played, every, margin_of(played, every))]
    seeds = {task: len(own) for task, own in runs.items()}
    return {"rule": NOW, "best": best, "seeds": seeds, "now": now, "held_out": held_out}


def outcome(rule: Rule, runs: Sequence[Sequence[float | None]]) -> Outcome:
    """What a rule saves and costs on a task."""
    ends = [(run, stopped(rule, run)) for run in runs]
    saved = statistics.mean(1 - end / len(run) for run, end in ends)
    return Outcome(saved, statistics.mean(math.log(_best_s(run[:end]) / _best_s(run)) for run, end in ends))


def stopped(rule: Rule, latencies_s: Sequence[float | None]) -> int:
    """After how many trials: a search is asked before each round."""
    judge = EarlyStopping(*rule)
    for begin in range(0, len(latencies_s), ROUND):
        if judge.over:
            return begin
        part = latencies_s[begin : begin + ROUND]
        judge.update([(str(begin + at).encode(), (s,) if s else ()) for at, s in enumerate(part)])
    return len(latencies_s)


def _best_s(latencies_s: Sequence[float | None]) -> float:
    return min(s for s in latencies_s if s)


def chosen(played: Played, tasks: Sequence[int], margin: float) -> int:
    """The rule that saves most on these tasks, of those that lose little; equal ones: the one of most patience."""
    saved, loss = played[:, tasks].mean(axis=1).T
    merit = np.where(np.expm1(loss) <= margin * LOSS_BAR, saved, 0.0)
    return int(np.flatnonzero(merit == merit.max())[-1])


def margin_of(played: Played, tasks: Sequence[int]) -> float:
    """The margin with which most is saved on tasks that had no part in choosing, within the bar; else the least."""

    def merit(margin: float) -> float:
        rules = [chosen(played, [other for other in tasks if other != task], margin) for task in tasks]
        saved, loss = played[rules, tasks].mean(axis=0)
        return float(saved) if math.expm1(loss) <= LOSS_BAR else -math.inf

    return max(MARGINS, key=merit)


def section(told: Mapping[str, Any]) -> list[str]:
    """For RESULTS.md."""
    held_out, again = told["held_out"], told["again"]
    lines = [
        "## Early stopping",
        "",
        f"`python benchmarks/early_stopping.py`: rules played on searches of {TRIALS} trials with `{METHOD}`, as they",
        "were measured first, so that a lucky measurement which is missed counts as lost. A rule is its patience,",
        f"progress, near, several and haste; the one that there is: {_said(told['rule'])}; the one that all tasks",
        f"choose: {_said(told['best'])}. *Held out*: for each task, what the rule does that the others choose, who",
        "choose too how much it may lose on them.",
        "",
        "| task | seeds | saved (bar: 30 %) | loss (bar: 1 %) | measured again | held out: saved | loss | by rule |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task, own in told["now"].items():
        saved, loss, rule = held_out[task]
        cells = (_told(*own), _loss(again[task]) if task in again else "-", _told(saved, loss), _said(rule))
        lines.append(f"| {task} | {told['seeds'][task]} | {' | '.join(cells)} |")
    lost = _loss(statistics.mean(again.values()))
    return [*lines, f"| all | | {_mean(told['now'])} | {lost} | {_mean(held_out)} | |"]


def _mean(outcomes: Mapping[str, Sequence[Any]]) -> str:
    return _told(*(statistics.mean(one[at] for one in outcomes.values()) for at in (0, 1)))


def _told(saved: float, loss: float) -> str:
    return f"{saved:.0%} | {_loss(loss)}"


def _loss(logarithm: float) -> str:
    return f"{math.expm1(logarithm):.2%}"


def _said(rule: Sequence[float]) -> str:
    return ", ".join(f"{part:g}" for part in rule)


if __name__ == "__main__":
    main()
