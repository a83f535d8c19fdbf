"""Proofs of a key, and attacks without it."""

import hashlib
import hmac
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from autosched.errors import AutoschedError, ConfigError, Refused
from autosched.protocol import Challenge
from autosched.protocol.roles import Role
from autosched.wire import keys
from autosched.wire.keys import Key, Proving, proof

KEY = Key(Role.USER, "3f2a91bc", bytes(range(32)))
CHANNEL = hashlib.sha256(b"the certificate").digest()


def challenged(key: Key, proving: Proving, channel: bytes = CHANNEL) -> Challenge:
    """Returns the challenge of a daemon with this key and certificate."""
    nonce = b"d" * 32
    return Challenge(nonce, proof(key, "daemon", proving.question().nonce, nonce, channel))


def test_a_line_is_read_as_it_was_written() -> None:
    assert keys.parse(KEY.line() + "\n", "x") == KEY
    assert KEY.line() == "user:3f2a91bc:" + bytes(range(32)).hex()


def test_a_proof_is_what_the_page_of_the_wire_says() -> None:
    words = b"autosched/1\0peer\0user\x003f2a91bc\0" + b"a" * 32 + b"b" * 32 + CHANNEL
    assert proof(KEY, "peer", b"a" * 32, b"b" * 32, CHANNEL) == hmac.digest(KEY.secret, words, hashlib.sha256)


def test_the_messages_in_tests_wire_prove_what_they_say() -> None:
    folder = Path(__file__).parents[2] / "wire"

    def params(name: str) -> dict[str, bytes]:
        message = json.loads((folder / f"{name}.json").read_text())["message"]
        return {
            key: bytes.fromhex(value["$bytes"])
            for key, value in message[-1].items()
            if isinstance(value, dict) and "$bytes" in value
        }

    nonce, challenge = params("authenticate")["nonce"], params("challenge")
    assert challenge["proof"] == proof(KEY, "daemon", nonce, challenge["nonce"], b"")
    assert params("hello_key")["proof"] == proof(KEY, "peer", nonce, challenge["nonce"], b"")


def test_the_secret_is_not_shown_by_accident() -> None:
    assert KEY.secret.hex() not in repr(KEY) + str(KEY) + f"{[KEY]}"


@pytest.mark.parametrize("text", ["", "user:a", "king:a:" + "0" * 64, "user:A b:" + "0" * 64, "user:a:" + "0" * 63])
def test_what_is_no_key_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match="holds no key") as refused:
        keys.parse(text, "FILE")
    assert "0000" not in str(refused.value)


def test_both_sides_prove_that_they_have_the_key() -> None:
    proving = Proving(KEY, CHANNEL)
    question = proving.question()
    challenge = challenged(KEY, proving)
    assert proving.answer(challenge) == proof(KEY, "peer", question.nonce, challenge.nonce, CHANNEL)


@pytest.mark.parametrize(
    "pretender",
    [replace(KEY, secret=bytes(32)), replace(KEY, id="other"), replace(KEY, role=Role.OPERATOR)],
    ids=["another secret", "another id", "another role"],
)
def test_a_daemon_without_the_key_hears_nothing(pretender: Key) -> None:
    proving = Proving(KEY, CHANNEL)
    with pytest.raises(Refused, match="does not have the key 3f2a91bc"):
        proving.answer(challenged(pretender, proving))


def test_a_man_in_the_middle_has_another_certificate_and_no_fitting_proof() -> None:
    proving = Proving(KEY, hashlib.sha256(b"a certificate of his own").digest())
    with pytest.raises(Refused, match="another certificate"):
        proving.answer(challenged(KEY, proving))


def test_a_proof_cannot_be_sent_back_as_the_others() -> None:
    proving = Proving(KEY, CHANNEL)
    challenge = challenged(KEY, proving)
    assert proving.answer(challenge) != challenge.proof
    with pytest.raises(Refused):
        proving.answer(replace(challenge, proof=proof(KEY, "peer", proving.question().nonce, b"d" * 32, CHANNEL)))


def test_each_connection_has_another_nonce() -> None:
    assert Proving(KEY, CHANNEL).question().nonce != Proving(KEY, CHANNEL).question().nonce


# Where a user has it ------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (keys.VARIABLE, keys.FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def written(path: Path, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(KEY.line())
    path.chmod(mode)
    return path


def test_a_key_is_found_where_it_usually_is(home: Path) -> None:
    assert keys.own() is None
    written(home / "autosched/key")
    assert keys.own() == KEY


def test_variables_go_before(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(KEY, id="other")
    monkeypatch.setenv(keys.FILE_VARIABLE, str(written(home / "elsewhere")))
    assert keys.own() == KEY
    monkeypatch.setenv(keys.VARIABLE, other.line())
    assert keys.own() == other


def test_a_key_that_others_may_read_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(home / "open", 0o640)
    monkeypatch.setenv(keys.FILE_VARIABLE, str(path))
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        keys.own()
    monkeypatch.setenv(keys.FILE_VARIABLE, str(home / "none"))
    with pytest.raises(ConfigError, match="cannot be read"):
        keys.own()


def test_keys_are_for_the_network(home: Path) -> None:
    assert keys.for_address("tcp://127.0.0.1:1") is None
    with pytest.raises(AutoschedError, match="AUTOSCHED_KEY"):
        keys.for_address("tls://lab:1")
    written(home / "autosched/key")
    assert keys.for_address("unix:/a") is None
    assert keys.for_address("tls://lab:1") == KEY
