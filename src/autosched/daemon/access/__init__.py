"""Authentication, admission control and audit.

Files: endpoints.py (where the daemon listens), sockets.py, acceptor.py (accepts connections), admission.py (limits),
authenticator.py and keyring.py (keys), peer_identity.py (users behind local connections), login_rate_limit.py,
audit.py.
"""
