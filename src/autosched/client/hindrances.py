"""Failures of a stage for which its job is not to blame: what they are, and how long to wait before it is repeated."""

import errno

from autosched.errors import Busy, Hindered, StorageFull

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Error numbers of a disk that takes nothing more. The job waits for space, however long that takes."""
LIMITS = (errno.EMFILE, errno.ENFILE, errno.EAGAIN)
"""Error numbers of limits of the system, which the job itself may have used up."""
LIMITS_IN_A_ROW_MAX = 20
"""Maximum number of stages in a row that are repeated because of such a limit."""
PAUSE_FIRST_S, PAUSE_MAX_S, PAUSE_GROWTH = 1.0, 30.0, 1.6


class Hindrances:
    """The hindrances of one job since its last stage without one."""

    def __init__(self) -> None:
        self._pause_s, self._limits_in_a_row = PAUSE_FIRST_S, 0

    def cause(self, error: BaseException | None) -> str:
        """Why a stage failed, if that is a hindrance; empty if its job is to blame."""
        while error is not None:
            if isinstance(error, (StorageFull, Busy, Hindered)):
                return str(error)
            if isinstance(error, OSError) and error.errno in DISK:
                return f"{error.strerror}: {error.filename or 'its disk'}; free space there, or make it writable"
            if isinstance(error, OSError) and error.errno in LIMITS and self._limits_in_a_row < LIMITS_IN_A_ROW_MAX:
                self._limits_in_a_row += 1
                return str(error)
            error = error.__cause__
        return ""

    def pause_s(self) -> float:
        """Seconds until the stage is repeated: longer each time."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * PAUSE_GROWTH, PAUSE_MAX_S)
        return pause_s

    def over(self) -> None:
        """Note a stage without a hindrance."""
        self._pause_s, self._limits_in_a_row = PAUSE_FIRST_S, 0
