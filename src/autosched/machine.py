"""Facts about this machine."""

import platform
from functools import cache
from pathlib import Path


@cache
def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name of the processor's model, as the kernel tells it; its architecture where the kernel tells none."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if model := told.get("model name") or told.get("Model"):
        return model
    arm = [told[name] for name in ("CPU implementer", "CPU part", "CPU variant") if name in told]
    return " ".join([platform.machine(), *arm])
