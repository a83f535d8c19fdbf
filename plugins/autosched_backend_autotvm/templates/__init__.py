"""The templates: one file a family. See `autosched_backend_autotvm.match` for which one fits a task."""
