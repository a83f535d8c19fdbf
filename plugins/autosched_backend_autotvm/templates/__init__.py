"""Templates, one file for each family. `autosched_backend_autotvm.template_matching` chooses the one for a task."""
