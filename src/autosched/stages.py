"""The stages: kinds of work that a backend does for a job, one row each.

A new stage costs a row here, a method of the backend (backend.py) and its call (client/job_runner.py).
"""

from enum import StrEnum

from msgspec import Struct

IMPORT, BASELINE, COMPILE, EVALUATE = "import", "baseline", "compile", "evaluate"
"""Stages of the network, each a round of its own."""
SELECT, BUILD, PROFILE, UPDATE = "select", "build", "profile", "update"
"""Stages of a round of a task."""


class StageRole(StrEnum):
    """The meaning of a stage for the order in which steps start: all that the scheduler knows of it, with its place."""

    OTHER = "other"
    JOINS = "joins"
    """Each process of a job begins with it."""
    OPENS = "opens"
    """It begins a round, and leads to a stage that feeds a device."""
    FEEDS = "feeds"
    """It makes, within a round, what a device needs."""
    FOLLOWS = "follows"
    """It comes later in a round."""

    @property
    def in_round(self) -> bool:
        """Whether it is a part of rounds."""
        return self in (StageRole.OPENS, StageRole.FEEDS, StageRole.FOLLOWS)


class Stage(Struct, frozen=True):
    """A kind of work."""

    name: str
    role: StageRole
    order: int
    """Its place in the life of a job: a stage with a smaller one comes before it."""
    doing: str = ""
    """The work of its steps in words, before the name of a task."""
    on_device: bool = False
    """Whether it measures, on a device; other stages run on a lane of the host."""
    block: str = "▚"
    """Its sign in charts."""
    letter: str = "+"
    """Its sign in charts without Unicode."""

    @property
    def of_network(self) -> bool:
        """Whether it is a stage of the whole network."""
        return not self.role.in_round


STAGES = {
    stage.name: stage
    for stage in (
        Stage(IMPORT, StageRole.JOINS, 1, "importing"),
        Stage(BASELINE, StageRole.OTHER, 2, "measuring the baseline of", on_device=True),
        Stage(SELECT, StageRole.OPENS, 3, "choosing schedules for", block="░", letter="."),
        Stage(BUILD, StageRole.FEEDS, 4, "building", block="█", letter="#"),
        Stage(PROFILE, StageRole.FOLLOWS, 5, "measuring", on_device=True, block="▓", letter="="),
        Stage(UPDATE, StageRole.FOLLOWS, 6, "learning from", block="▒", letter="~"),
        Stage(COMPILE, StageRole.OTHER, 7, "compiling"),
        Stage(EVALUATE, StageRole.OTHER, 8, "evaluating", on_device=True),
    )
}
"""The stages of our own clients, in their order."""
FOREIGN_ORDER = len(STAGES) + 1
"""Place of a stage of foreign clients that do not say where it comes."""


def stage_of(name: str) -> Stage:
    """The stage of this name; for a foreign client's own stage, one without a role."""
    return STAGES.get(name) or Stage(name, StageRole.OTHER, FOREIGN_ORDER)
