"""Quality of the estimates of a simulated scheduler: perfect, learned or wrong."""

import math
import re
from collections.abc import Callable
from random import Random
from typing import Literal

from msgspec import Struct

from autosched.errors import RequestError
from autosched.sim.scenario import ScenarioJob, Work

Expectation = Callable[[Work], float | None]
"""Returns the expected seconds of a step; None if unknown."""

SIGMA_MAX = 10.0


class EstimateQuality(Struct, frozen=True):
    """`wrong`: each job's mean per stage, times exp(N(0, sigma)) drawn once per job and stage, and never corrected."""

    mode: Literal["perfect", "learned", "wrong"]
    sigma: float = 0.0

    def __str__(self) -> str:
        return f"{self.mode}:{self.sigma:g}" if self.mode == "wrong" else self.mode

    def of(self, plan: ScenarioJob, seed: str) -> Expectation:
        """Expectations of one job's steps; equal seeds give equal errors."""
        match self.mode:
            case "perfect":
                return lambda work: work.duration_s
            case "learned":
                return lambda work: None
            case "wrong":
                wrong = self._wrong(plan, seed)
                return lambda work: wrong[work.stage]

    def _wrong(self, plan: ScenarioJob, seed: str) -> dict[str, float]:
        seconds: dict[str, list[float]] = {}
        for work in plan.works():
            seconds.setdefault(work.stage, []).append(work.duration_s)
        return {
            stage: sum(all_s) / len(all_s) * math.exp(Random(f"wrong/{seed}/{stage}").gauss(0.0, self.sigma))
            for stage, all_s in seconds.items()
        }


PERFECT = EstimateQuality("perfect")
LEARNED = EstimateQuality("learned")


def parse(text: str) -> EstimateQuality:
    """`perfect`, `learned` or `wrong:SIGMA`. Raises RequestError."""
    if text in ("perfect", "learned"):
        return PERFECT if text == "perfect" else LEARNED
    if (match := re.fullmatch(r"wrong:(\d+(?:\.\d+)?)", text)) and float(match[1]) <= SIGMA_MAX:
        return EstimateQuality("wrong", float(match[1]))
    raise RequestError(
        f"{text!r} is no kind of estimates; write perfect, learned, or wrong:SIGMA with the spread of the mistakes as"
        f" a logarithm, at most {SIGMA_MAX:g}: wrong:1.0"
    )
