"""The parts of the daemon that are looked at over HTTP."""

from collections.abc import Callable

from msgspec import Struct

from autosched.daemon.access.authenticator import Authenticator
from autosched.daemon.sessions import Services
from autosched.daemon.telling.curves import Curves
from autosched.daemon.telling.recent import Recent
from autosched.daemon.telling.tally import Tally
from autosched.daemon.telling.usage import Usage


class Shown(Struct, frozen=True):
    """Everything that the page, the metrics and the health are made of."""

    services: Services
    authenticator: Authenticator
    """Its keys are asked for here, too, and who shows wrong ones is not listened to at either place."""
    usage: Usage
    tally: Tally
    curves: Curves
    recent: Recent
    stopping: Callable[[], bool]
