"""Programs that other processes start with ``python -m``. Each prints JSON, and may die where TVM crashes.

Files: `board_server` (a TVM RPC server that outlives its sessions; it prints no JSON), `installation_check` (whether
TVM can tune on this machine), `model_check` (what a job would tune of a model), `module_command` (runs, times and
checks a compiled network), `task_collection` (a network's tasks in several sizes).
"""
