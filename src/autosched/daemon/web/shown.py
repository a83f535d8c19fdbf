"""The parts of the daemon that are looked at over HTTP."""

from collections.abc import Callable

from msgspec import Struct

from autosched.daemon.curves import Curves
from autosched.daemon.door import Door
from autosched.daemon.recent import Recent
from autosched.daemon.sessions import Services
from autosched.daemon.tally import Tally
from autosched.daemon.usage import Usage


class Shown(Struct, frozen=True):
    """Everything that the page, the metrics and the health are made of."""

    services: Services
    door: Door
    """Its keys are asked for here, too, and who shows wrong ones is not listened to at either place."""
    usage: Usage
    tally: Tally
    curves: Curves
    recent: Recent
    stopping: Callable[[], bool]
