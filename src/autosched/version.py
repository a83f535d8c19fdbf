"""The version, and the last one without a release."""

from autosched_runtime.version import __version__ as __version__

LAST_UNRELEASED = "19f421bc"
"""Commit whose `autosched db upgrade` makes a database of the first release from an earlier one."""
