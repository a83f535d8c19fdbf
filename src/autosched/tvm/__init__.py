"""Common parts of all backends on TVM: import, tasks, processes, compile, check, measure.

Loaded only by client processes and by their children; the daemon, the command line and the core never import it.
"""
