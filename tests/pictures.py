"""Records the pictures of the documentation: `make picture`.

`demo`: docs/demo.svg, a run of `autosched demo`. `lab`: the pictures of docs/lab.md, output of commands in a lab of
three machines. Two of them are network namespaces (needs root). The devices have no cores, and the jobs use the mock
backend, whose stages sleep, so that a lab of any size fits on one machine.
"""

import argparse
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import wires
from autosched.daemon.access import keyring
from autosched.model import JobId
from autosched.protocol.roles import Role
from deadlines import until
from integration.lab import Lab, lab
from integration.lender import Lender, hosts, tls_address
from lent_host import boards, lane, tls
from terminal_picture import animation, record, still

DOCS = Path(__file__).parents[1] / "docs"
LAB = DOCS / "lab"
DELAY_S = 0.001
STEPS_S = {"build_s": 1.0, "profile_s": 2.5, "update_s": 1.5}
"""Seconds of the stages of a job, for 8 candidates each."""
NAMESPACE = re.compile(r"\b10(\.[0-9]+){3}")
"""IP addresses of the namespaces. Pictures show an address reserved for documentation instead."""
ENDLESS = 4_000
"""Number of trials of a job that does not end before its picture is taken."""


def demo() -> None:
    """Records the demo."""
    recorded = record([str(Path(sys.executable).with_name("autosched")), "demo"])
    title = "A terminal in which `make demo` tunes two networks at the same time"
    (DOCS / "demo.svg").write_text(animation(recorded, title))


@contextmanager
def machines(folder: Path) -> Iterator[tuple[Lab, wires.Wire]]:
    """Yields a daemon with one device, and two hosts with one and two devices; and the wire to the first host."""
    with ExitStack() as held:
        _, key = keyring.make(folder / "keys", Role.AGENT, "lab")
        settings = f"{tls('0.0.0.0:0')}{lane()}{boards(1)}"
        there = held.enter_context(lab(folder, settings))
        cables = []
        for number in (2, 3):
            cable = held.enter_context(wires.wire(number, DELAY_S))
            host = Lender(there, f"lab{number}")
            host.reach(cable, tls_address(there).rpartition(":")[2])
            host.settings = f"{lane(last=number == 2)}{boards(number - 1)}"
            host.start("--key", str(key))
            held.callback(host.end)
            cables.append(cable)
        until(lambda: [host.state for host in hosts(there)] == ["here", "here"], "the hosts join")
        yield there, cables[0]


def picture(there: Lab, name: str, title: str, *lines: str) -> None:
    """Records the output of some commands, one after the other."""
    script = "; ".join(f"printf '\\033[1m$ %s\\033[0m\\n' {shlex.quote(line)}; {line}; echo" for line in lines)
    environment = {
        **os.environ, "AUTOSCHED_HOST": there.address, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    drawn = still(record(["sh", "-c", script], environment)[-1][1], title)
    (LAB / f"{name}.svg").write_text(NAMESPACE.sub("192.0.2.2", drawn))


def many_jobs(there: Lab, *, movable: bool = True) -> list[JobId]:
    """Submits six jobs that share the lab. `movable`: their stages may run on other hosts than the client's."""
    names = ("mobilenet", "resnet", "bert", "detector", "speech", "layout")
    return [
        there.submit(trials=ENDLESS, name=name, tasks=4, seed=n, movable=movable, **STEPS_S)
        for n, name in enumerate(names)
    ]


def end(there: Lab, *jobs: JobId) -> None:
    """Cancels jobs, and waits until they have ended."""
    for job in jobs:
        there.cancel(job)
    for job in jobs:
        there.wait(job)


def until_lab2(there: Lab, state: str) -> None:
    """Waits until the host lab2 is in this state: here, away, or left."""
    until(lambda: next(host.state for host in hosts(there) if host.host == "lab2") == state, f"lab2 is {state}")


def until_busy(there: Lab) -> None:
    """Waits until each host is at work."""
    until(lambda: all(host.busy for host in hosts(there)), "all hosts are at work")


def lab_pictures() -> None:
    """Records the pictures of a lab."""
    if why := wires.possible():
        sys.exit(f"there are no namespaces here: {why}")
    LAB.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="autosched-lab-") as folder, machines(Path(folder)) as (there, cable):
        jobs = many_jobs(there)
        for job in jobs:
            there.wait(job, "trials", 32)
        picture(there, "hosts", "The hosts of a lab, and one of them", "autosched hosts", "autosched hosts show lab3")
        picture(there, "devices", "Lanes and devices of three hosts", "autosched devices")
        picture(there, "many", "Six jobs on three hosts", "autosched jobs", "autosched gantt --last 40s")
        end(there, *jobs)
        alone = there.submit(
            trials=ENDLESS, name="resnet", tasks=1, movable=True, divisible=True, **{**STEPS_S, "profile_s": 16.0}
        )
        there.wait(alone, "trials", 64)
        picture(there, "one", "One task is measured by four devices", "autosched gantt --last 40s")
        end(there, alone)
        many_jobs(there, movable=False)
        until_busy(there)
        lost = next(host.jobs[0] for host in hosts(there) if host.host == "lab2")
        cable.cut()
        until_lab2(there, "away")
        picture(there, "cut", "A host that is cut off", "autosched hosts", f"autosched explain {lost}")
        until_lab2(there, "left")
        cable.mend()
        until_lab2(there, "here")
        there.submit(trials=ENDLESS, name="small", tasks=4, **STEPS_S)
        until_busy(there)
        picture(there, "back", "The host is back", "autosched hosts", "autosched gantt --last 2m")


PICTURES: dict[str, Callable[[], None]] = {"demo": demo, "lab": lab_pictures}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", choices=[[], *PICTURES], help="Default: all.")
    for which in parser.parse_args().which or PICTURES:
        PICTURES[which]()
