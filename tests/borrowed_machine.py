"""``python borrowed_machine.py FILE ARGUMENTS`` runs autosched on a machine whose owner uses it while FILE exists."""

import sys
from pathlib import Path

from autosched.agent import agent_process, owner_watch
from autosched.cli import main


class Told(owner_watch.ForeignTime):
    """Reports the load that the file contains, instead of the machine's."""

    in_use = Path()

    def look(self) -> tuple[float, bool]:
        super().look()
        return (owner_watch.LOOK_S if self.in_use.exists() else 0.0), True


if __name__ == "__main__":
    Told.in_use = Path(sys.argv.pop(1))
    agent_process.ForeignTime = Told  # type: ignore[misc]
    main()
