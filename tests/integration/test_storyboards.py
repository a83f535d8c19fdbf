"""First minutes of a new user, and an operator's day: typed into a shell at a terminal.

The backend needs no compiler, so that it takes seconds. bash's own /dev/tcp replaces a missing `nc`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.daemon.access import keyring
from autosched.protocol.roles import Role
from autosched.text.curve import EIGHTHS
from autosched.wire.whereabouts import WHEREABOUTS
from deadlines import until
from integration.lab import MODEL, Lab, lab
from packages import install
from terminal import Terminal, bash

LAB = "".join(
    f'[[device]]\nname = "{name}"\nkind = "{kind}"\n'
    for name, kind in (("llvm0", "cpu"), ("pi4-1", "pi4"), ("pi4-2", "pi4"))
)
SLOW = """
import msgspec
from autosched_backend_mock import MockBackend


class Slow(MockBackend):
    def open(self, job, *where):
        options = {"build_s": 0.5, "fail_ratio": 0.5} | job.options
        return super().open(msgspec.structs.replace(job, options=options), *where)
"""
"""A backend with jobs long enough to look at, and with builds that may fail."""
NC = 'nc() { exec 3<>"/dev/tcp/$1/$2"; cat <&3 & cat >&3; }'
PHONE = 20
"""Number of lines of a phone's screen."""


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    (tmp_path / "lab").mkdir()
    theirs = install(tmp_path / "packages", "autosched.backends", {"slow_mock": SLOW}, slow="slow_mock:Slow")
    monkeypatch.setenv("PYTHONPATH", str(theirs))
    with lab(tmp_path / "lab", f'{LAB}[console]\nlisten = "127.0.0.1:0"\n') as running:
        yield running


@pytest.fixture
def shell(there: Lab, tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "nets").mkdir()
    for name in ("squeezenet.onnx", "nets/resnet50.onnx", "nets/magika.onnx"):
        (tmp_path / name).write_bytes(MODEL)
    terminal = bash(
        tmp_path, AUTOSCHED_HOST=there.address, AUTOSCHED_STATE_DIR=str(there.folder), AUTOSCHED_BACKEND="slow"
    )
    yield terminal
    terminal.close()


def test_the_new_users_storyboard_runs_as_written(shell: Terminal) -> None:
    shell.start("autosched tune squeezenet.onnx --trials 600")
    shell.wait("best ")
    shell.press("w", "TASK +SHARE +TRIALS +FAILED")
    shell.press("f", r"the last build error: ")
    shell.press("e", r"task \d.* (runs on|waited|wait)")
    assert "Detached. The job goes on:  autosched attach 1     stop it:  autosched cancel 1" in shell.interrupt()
    drawn = shell.type("autosched plot 1")
    assert "job 1 squeezenet: best estimate " in drawn
    assert set(EIGHTHS.strip()) & set(drawn), "a curve, with however few estimates"
    shell.type('autosched drain pi4-1 --reason "heartbeat lost"')
    shell.type('autosched drain pi4-2 --reason "new heat sink"')
    accepted = shell.type("autosched submit nets/*.onnx -t llvm -t pi4 --trials 1000 --deadline 6h")
    assert " jobs 2-5 accepted (4)" in accepted
    listed = shell.type("autosched jobs")
    assert "REASON" in listed
    targets = dict(re.findall(r"^ +(\d)  \S+ +(\S+)", listed, re.MULTILINE))
    assert targets == {"1": "cpu", "2": "llvm", "3": "pi4", "4": "llvm", "5": "pi4"}
    until(lambda: "drained" in shell.type("autosched explain 5"), "the network of job 5 is imported")
    why = shell.type("autosched explain 5")
    assert "new heat sink" in why
    assert "heartbeat lost" in why
    assert "job 6 takes the place of job 5" in shell.type("autosched set 5 target=llvm")
    assert "cancelled" in shell.type("autosched job 5")
    drawn = shell.type("autosched gantt --last 5m")
    assert "host/0" in drawn
    assert "idle: " in drawn
    shell.start("autosched top")
    shell.wait("squeezenet")
    shell.quit()


def test_the_terminal_is_restored_however_a_command_ends(shell: Terminal, there: Lab) -> None:
    modes = shell.type("stty -a")
    job = there.submit(build_s=1.0, trials=6_000)  # it does not end by itself meanwhile

    def cancelled() -> str:
        there.cancel(job)
        return shell.prompt()

    for leave, words, code in (
        (shell.quit, "Detached. The job goes on:  autosched attach 1", 130),
        (shell.interrupt, "Detached. The job goes on:  autosched attach 1", 130),
        (shell.end, "Detached. The job goes on:  autosched attach 1", 130),
        (cancelled, "was cancelled after", 7),
    ):
        shell.start("autosched attach 1")
        shell.wait("q = detach")
        assert words in leave()
        assert shell.type("echo $?").split()[-1] == str(code)
        assert shell.type("stty -a") == modes
    assert "cancelled" in shell.type("autosched attach 1 </dev/null | cat"), "no terminal, no keys"


@pytest.mark.tvm
def test_the_first_network_is_compiled_and_checked(there: Lab, tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from nets import conv_net

    onnx.save(conv_net(4, 8), tmp_path / "ppocr_rec.onnx")
    shell = bash(tmp_path, AUTOSCHED_HOST=there.address)
    try:
        assert "autosched tune ppocr_rec.onnx" in shell.type("autosched model check ppocr_rec.onnx")
        shell.type("autosched submit ppocr_rec.onnx --trials 64")
        there.wait(1, "trials", 1)
        shell.type("autosched cancel 1")
        (tmp_path / "ppocr_rec.onnx").unlink()  # the daemon has it
        said = shell.type("autosched compile 1 -o squeezenet.so && autosched run squeezenet.so --check")
    finally:
        shell.close()
    assert "files in .: squeezenet.so, squeezenet.json" in said
    assert "outputs equal to ONNX Runtime" in said.partition(" squeezenet.so ")[2]


@pytest.mark.tvm
def test_a_network_that_cannot_be_tuned_is_refused_with_the_way_out(shell: Terminal, tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    onnx = pytest.importorskip("onnx")
    from nets import model

    determinant = onnx.helper.make_node("Det", ["x"], ["y"], name="det")
    onnx.save(model([determinant], {"x": [4, 4]}, ["y"], {}), tmp_path / "odd.onnx")
    said = " ".join(shell.type("autosched model check odd.onnx").split())
    assert "operator Det (node 'det') is not supported: replace that layer" in said
    assert shell.type("echo $?").split()[-1] == "1"


def test_console_answers_fit_a_phone(shell: Terminal) -> None:
    shell.type('autosched drain pi4-2 --reason "fan"')
    shell.type("autosched submit squeezenet.onnx -t pi4 --option hang_stage=import")
    for line, words in (
        ("autosched status", "1 of 1 job active"),
        ("autosched explain 1", ""),
        ("autosched device log pi4-2", "fan"),
        ('autosched drain pi4-1 --reason "hot"', "pi4-1 gets no more steps"),
    ):
        said = shell.type(line)
        assert words in said, line
        assert len(said.splitlines()) <= PHONE, line


def test_the_operators_storyboard_runs_as_written(shell: Terminal, there: Lab, tmp_path: Path) -> None:
    told = shell.type("autosched install-systemd --dry-run")
    assert re.search(r"(new|same|changed) +/etc/systemd/system/autosched\.service", told)
    assert "Nothing was written." in told
    shell.type('autosched drain pi4-2 --reason "tracker answers, session refused"')
    seen = shell.type("autosched doctor")
    for finding in ("TVM, kernel: compiled, linked, run, right", "linker", "of disk are free", "pi4-2: drained"):
        assert finding in " ".join(seen.split()), seen
    assert "autosched device log pi4-2" in seen
    shell.type(f"export AUTOSCHED_STATE_DIR={there.folder}")
    assert "user:alice:" in shell.type("autosched token add alice --role user --quota 'share=1 jobs=50'")
    assert re.search(r"alice +user +50 ", shell.type("autosched key list"))
    assert "drain" in shell.type("autosched audit")
    assert " models and results are not in it" in shell.type("autosched db backup backup.db")
    assert (tmp_path / "backup.db").stat().st_size > 0


def test_the_operators_storyboard_runs_through_nc(shell: Terminal, there: Lab) -> None:
    key, _ = keyring.make(there.folder / "keys", Role.OPERATOR)
    for _ in range(16):
        there.submit(external=True)
    address = json.loads((there.folder / WHEREABOUTS).read_text())["console"][1]
    shell.type(f"command -v nc >/dev/null || {NC}")
    shell.start(f"nc {address.replace(':', ' ')}")
    shell.wait(r"# autosched \S+ \S+ uptime \S+ role=none   help \| quit")
    task = ""
    for line, answer in (
        (f"auth {key.id} {key.secret.hex()}", "OK role=operator"),
        ("info sched", "jobs_waiting:16"),
        ("jobs state=waiting", "OK there are none"),
        ("why 14", "job 14 waits for its client"),
        ("set job 14 priority +5", "OK was 0"),
        ("hold 13", "OK held 1 job: 13"),
        ("release 13", "OK released 1 job: 13"),
        ("cancel 12-15 --dry-run", "OK would cancel 4 jobs"),
        ('drain pi4-1 --reason "fan" --deadline 10m', "OK 0 steps running; `undrain pi4-1` to undo"),
        ("log pi4-1", "UnitDrained unit=pi4-1 reason="),
        ("pause", "OK no new steps start; running ones finish"),
        ("reload check", "OK 0 changes"),
        ("reload timeout 120", "OK 0 changes"),
        ("monitor job=12", "OK a line ends it"),
        ("", r"\n\.\r?\n"),
        ("slowlog", "OK"),
        ("tasks", r"\n *(\d+)  the scheduler's loop"),
        ("where TASK", r"OK the scheduler's loop\r?\n.*\n\.\r?\n"),
        ("shutdown drain 5m", "OK running steps finish, for 5m00s at most; then the daemon stops"),
    ):
        shell.start(line.replace("TASK", task))
        task = shell.wait(answer) or task
    assert there.gone() == 0
