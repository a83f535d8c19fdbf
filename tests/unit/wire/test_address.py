from pathlib import Path

import pytest

from autosched.api import daemon_address
from autosched.errors import RequestError
from autosched.wire import address, whereabouts


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("unix:/a/b", "unix:/a/b"), ("/a/b", "unix:/a/b"), ("lab7:8800", "tcp://lab7:8800"),
     ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"), ("[::1]:80", "tcp://[::1]:80"), ("", None),
     ("tls://lab7:8800", "tls://lab7:8800"), ("tls://[::1]:80", "tls://[::1]:80")],
)  # fmt: skip
def test_what_names_a_daemon(text: str, wanted: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOSCHED_HOST", raising=False)
    assert daemon_address.named(text) == wanted


@pytest.mark.parametrize("text", ["foo", "tcp://x", "tcp://x:0", "x:65536", "http://x:1", "unix:"])
def test_what_does_not(text: str) -> None:
    with pytest.raises(RequestError, match="Write tcp://HOST:PORT"):
        daemon_address.named(text)


def test_the_argument_goes_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCHED_HOST", "lab:1")
    assert daemon_address.named(None) == "tcp://lab:1"
    assert daemon_address.named("other:2") == "tcp://other:2"


def test_the_default_is_this_users_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert daemon_address.default() == f"unix:{tmp_path}/autosched/api.sock"


def test_without_a_daemon_of_his_own_a_user_is_served_by_the_machines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = tmp_path / "service.sock"
    monkeypatch.setattr(daemon_address, "SERVICE", str(service))
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path))
    assert daemon_address.default() == daemon_address.own() == f"unix:{tmp_path}/api.sock"
    service.touch()
    assert daemon_address.default() == f"unix:{service}"
    (tmp_path / "api.sock").touch()
    assert daemon_address.default() == daemon_address.own()


def test_a_daemon_is_found_by_its_state_folder_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOSCHED_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/of-another")
    elsewhere = tmp_path / "elsewhere.sock"
    whereabouts.write(tmp_path, whereabouts.Whereabouts(7, "0.1", ("tcp://127.0.0.1:1", f"unix:{elsewhere}"), "now"))
    assert daemon_address.own() == f"unix:{tmp_path}/api.sock", "its socket is gone"
    elsewhere.touch()
    assert daemon_address.own() == daemon_address.default() == f"unix:{elsewhere}"
    (tmp_path / "daemon.json").write_text("{damaged")
    assert daemon_address.own() == f"unix:{tmp_path}/api.sock"


def test_brackets_are_no_part_of_a_host() -> None:
    assert address.tcp("tcp://[::1]:80") == ("::1", 80)


@pytest.mark.parametrize("text", ["lab7", "tcp://lab7", "tcp://lab7:x", "tcp://lab7:65536", ":80"])
def test_what_has_no_host_and_port_is_no_tcp_address(text: str) -> None:
    with pytest.raises(RequestError, match="is no address of a daemon"):
        address.tcp(text)
