"""The version, alone: reading it imports nothing."""

__version__ = "0.1.0"
