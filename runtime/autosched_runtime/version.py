"""The version of autosched and of its runtime, in a module that imports nothing."""

__version__ = "1.1.0.dev0"
