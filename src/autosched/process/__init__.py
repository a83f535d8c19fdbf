"""Starts, watches and ends child processes.

Files: program_runner.py (runs a program to its end), isolated_python.py (starts modules as programs that the
user's folder and environment do not change), json_command.py (runs a module that prints JSON),
detached_process.py (a process that survives its parent), forked_workers.py (warm, pinned, killable workers),
answering_child.py (a module that answers on a pipe), pipe_messages.py (messages on a pipe, one per line),
process_tree.py (processes that belong together, and their memory), client_limits.py (limits that a client sets
itself), control_group.py (limits of the kernel for a client with all it starts), parent_death_signal.py (a child dies
with its parent), folder_lock.py (one process uses a folder at a time), whole_file.py (small files, written
atomically), standby_process.py (a sibling that acts if this process is frozen or dead).
"""
