"""Authentication, admission control and audit.

Files: endpoints.py and sockets.py (listening sockets), acceptor.py (accepts connections and gives places), admission.py
(queues in front of work), fair_shares.py (what one user may take), authenticator.py and keyring.py (keys),
access_rules.py (who is an operator), peer_identity.py (users behind unix sockets), page_links.py (links that sign in),
login_rate_limit.py (bans hosts after failed logins), audit.py (the audit trail).
"""
