"""The beginning of a connection, on the connecting side: prove the key if one is required, then send Hello."""

import msgspec

from autosched.protocol import Challenge, Hello, Welcome
from autosched.wire import keys
from autosched.wire.address import TLS, TLS_UNIX
from autosched.wire.link import CALL_TIMEOUT_S, Link


async def introduce(link: Link, hello: Hello, *, timeout_s: float = CALL_TIMEOUT_S) -> Welcome:
    """Send Hello, with this user's key for the address. Raises the daemon's refusal, or ConfigError.

    A client has its token, and needs no key.
    """
    if hello.role != "client" or link.address.startswith((TLS, TLS_UNIX)):
        key = keys.of_client(hello.token) if hello.role == "client" else keys.for_address(link.address)
        if key is not None:
            proving = keys.Proving(key, link.channel)
            challenge = await link.call(proving.question(), Challenge, timeout_s=timeout_s)
            hello = msgspec.structs.replace(hello, proof=proving.answer(challenge))
    return await link.call(hello, Welcome, timeout_s=timeout_s)
