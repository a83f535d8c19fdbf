"""The version, in a module that imports nothing."""

__version__ = "1.0.0.dev0"
