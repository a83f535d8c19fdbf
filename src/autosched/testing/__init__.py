"""The old name of `autosched.conformance`, for backends of other packages. The next release drops it."""

import warnings

from autosched.conformance import BackendContract

__all__ = ["BackendContract"]
warnings.warn("autosched.testing is now autosched.conformance", DeprecationWarning, stacklevel=2)
