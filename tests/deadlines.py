"""How long a test waits for what should happen at once: a busy machine is no failure."""

DEADLINE_S = 100.0
"""Less than pytest's own limit, which does not say what was waited for."""
