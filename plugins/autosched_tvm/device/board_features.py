"""Asks a board which features its CPU grants to programs. Runs in a worker."""

import inspect
import json

from autosched_runtime import cpu_features
from autosched_tvm.device.place import BoardSession, place_of
from autosched_tvm.worker_failures import gist
from autosched_tvm.worker_messages import Remote

ANSWER = "features.json"
PROGRAM = f"""
import json
with open({ANSWER!r}, "w") as file:
    json.dump(granted(), file)
"""
"""End of the program that runs on the board; it begins with `cpu_features`."""


def asked(remote: Remote) -> dict[str, bool] | str:
    """Returns each known feature and whether it is granted, or why the board does not say. Raises DeviceLost."""
    with place_of(remote) as place:
        assert isinstance(place, BoardSession)
        try:
            place.run_python(inspect.getsource(cpu_features) + PROGRAM)
            found: dict[str, bool] = json.loads(place.read(ANSWER))
        except Exception as error:  # a server that is no Python process, or TVM's errors of any kind
            if not place.lives:
                raise
            return gist(error)
    return found
