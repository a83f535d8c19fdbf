"""The version, in a module that imports nothing."""

__version__ = "1.0.0.dev0"
LAST_UNRELEASED = "19f421bc"
"""Commit whose `autosched db upgrade` makes a database of the first release from an earlier one."""
