"""The templates: one file a family. See `autosched_backend_autotvm.template_matching` for which one fits a task."""
