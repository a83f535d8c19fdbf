"""Programs that other processes start with ``python -m``. Each prints JSON, and may die if TVM crashes.

Files: `board_server` (a TVM RPC server that survives its sessions; prints no JSON), `installation_check` (whether TVM
can tune on this machine), `model_check` (the tasks of a model), `model_cut` (a model in two parts), `model_whole`
(joins the files of a model), `module_command` (runs, times and checks a compiled network), `ranker_training` (rankers
from the records of a store), `stored_workloads` (the workloads of a store, for others; no program), `task_collection`
(a network's tasks in several sizes).
"""
