"""Adds a machine by ssh, typed at its console: a real sshd, a real systemd user instance, a real pip."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import pytest

import booted_machine
from autosched.daemon.access import keyring
from autosched.protocol.roles import Role
from booted_machine import INSTALL_MAX_S, succeeds
from chaos.agents import free_port
from deadlines import until
from integration.lab import Lab, lab
from integration.lender import LONG, hosts, hosts_of, tls_address
from lent_host import boards, lane, tls
from terminal import Terminal

pytestmark = [
    *booted_machine.NEEDED,
    pytest.mark.skipif(
        shutil.which("sshd", path="/usr/sbin") is None, reason="no sshd: apt-get install openssh-server"
    ),
]
KEYS = ((Role.AGENT, "lab2"), (Role.OPERATOR, "me"))
"""Role and name of each key that the daemon knows."""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    """A daemon with keys of an agent and an operator."""
    folder = tmp_path / "lab"
    folder.mkdir()
    for role, name in KEYS:
        keyring.make(folder / "keys", role, name)
    with lab(folder, f"{tls()}{lane()}{boards(1, 'none')}") as made:
        yield made


@pytest.fixture
def machine(there: Lab, tmp_path: Path) -> Iterator[Terminal]:
    """The console of a machine on which root can log in by ssh as the user `lab`."""
    with booted_machine.files(tmp_path) as root:
        for role, name in KEYS:
            shutil.copy(there.folder / f"keys/{role.value}-{name}.key", root / f"root/{name}.key")
        with booted_machine.booted(root) as console:
            for line in (
                "useradd --create-home --shell /bin/bash lab && mkdir -m 700 -p ~/.ssh && rm -f ~/.ssh/*",
                "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519",
                "install -D -o lab -m 600 ~/.ssh/id_ed25519.pub /home/lab/.ssh/authorized_keys",
                "chown -R lab ~lab/.ssh && cp autosched-*.whl ~lab && chmod a+r ~lab/*.whl",
                f"echo 'Port {(port := free_port())}' >> /etc/ssh/sshd_config && ssh-keygen -A && systemctl start ssh",
                f"echo 'StrictHostKeyChecking accept-new' > ~/.ssh/config && ssh -p {port} lab@localhost true",
                f"me=ssh://lab@localhost:{port} there='ssh -p {port} lab@localhost'",
            ):
                succeeds(console, line)
            yield console


def test_a_machine_that_ssh_reaches_lends_itself_until_it_is_told_to_stop(there: Lab, machine: Terminal) -> None:
    succeeds(machine, "apt-get install -y python3-venv", INSTALL_MAX_S)
    succeeds(machine, f"export AUTOSCHED_KEY=$(cat me.key) AUTOSCHED_HOST={tls_address(there)}")
    succeeds(machine, f"autosched() {{ {quote(sys.executable)} -m autosched $@; }}")
    wheel = "--install $(ls ~lab/autosched-*.whl)[tvm,onnxruntime]"
    said = succeeds(machine, f"autosched hosts add $me --name lab2 --key lab2.key {wheel}", INSTALL_MAX_S)
    assert "the agent of lab2 is started" in said
    assert [(host.host, host.state) for host in hosts(there)] == [("lab2", "here")]
    assert "600" in succeeds(machine, "$there stat -c %a .local/share/autosched/agent.key")

    job = there.submit(**LONG)
    there.wait(job, "trials", 8)
    kill = "$there 'kill -9 $(systemctl --user show --property MainPID --value autosched-agent)'"
    succeeds(machine, kill)
    assert there.wait(job).state == "done"
    assert hosts_of(there, job) == {"lab2"}
    restarts = "$there systemctl --user show --property NRestarts --value autosched-agent"
    assert succeeds(machine, restarts).split()[-1] == "1"

    said = succeeds(machine, f"autosched hosts add $me --name lab2 --key lab2.key {wheel}", INSTALL_MAX_S)
    assert "installs autosched" not in said
    succeeds(machine, "$there systemctl --user stop autosched-agent")
    until(lambda: [host.state for host in hosts(there)] == ["left"], "it leaves")
