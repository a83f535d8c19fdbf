"""The roles of principals on this daemon, by its keys and its group."""

from autosched.config import Config
from autosched.daemon.access import keyring, peer_identity
from autosched.daemon.access.keyring import Keyring
from autosched.daemon.access.peer_identity import OF_KEY, OF_USER
from autosched.protocol.roles import Role


class AccessRules:
    """The keys and the group of this daemon."""

    def __init__(self, config: Config) -> None:
        self.group = peer_identity.group_id(config.daemon.group)
        self.keys = Keyring(keyring.folder_of(config))

    def is_operator(self, name: str) -> bool:
        """Whether a principal of this name, such as the owner of a job, is an operator now."""
        if name.startswith(OF_KEY):
            key = self.keys.get(name.removeprefix(OF_KEY))
            return key is not None and key.role is Role.OPERATOR
        return name in {f"{OF_USER}{uid}" for uid in peer_identity.owners()}

    def admits_others(self) -> bool:
        """Whether users may submit jobs who are no operators."""
        return self.group is not None or any(key.role is Role.USER for key in self.keys)
