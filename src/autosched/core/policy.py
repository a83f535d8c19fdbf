"""The old name of `autosched.core.policies.policy`, for policies of other packages. The next release drops it."""

import warnings

from autosched.core.policies.policy import *  # noqa: F403
from autosched.core.policies.policy import POLICIES, Policy

__all__ = ["POLICIES", "Policy"]
warnings.warn("autosched.core.policy is now autosched.core.policies.policy", DeprecationWarning, stacklevel=2)
