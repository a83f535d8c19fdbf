"""The client: one process that hosts one job, and runs a step only when the daemon orders it.

Files: job_runner.py (answers the daemon and runs the steps that it orders), daemon_session.py (the connection, which
survives losses), network_import.py (the first stage), record_outbox.py and publication.py (what the daemon is told),
shared_knowledge.py (what other jobs know about the network), ranker_fetch.py (models of the record store that order
schedules), stage_runner.py (the backend's stages, in threads on leased cores), round_work.py (the builds of a round
that devices share), backend_boundary.py (validates what a backend returns), failed_steps.py (what follows a failure),
hindrances.py (failures for which the job is not to blame), interference.py (load of other programs on the device's
cores), pinning.py (threads and their cores), job_files.py (the job's files in the work folder), watchdog_process.py
(a sibling process that kills a frozen client), one_step_client.py (holds a unit's lease for one step of user code).
Steps on other hosts: helpers.py and away_step.py (seen from the client), helper_runner.py (seen from the helper that
runs them), moved_builds.py (builds that move between hosts). Folder: plan/ (what each task needs next, pure).

The event loop's thread only serves the connection, so that a step of several minutes cannot delay the heartbeat. All
state of a client can be rebuilt from (job, seed, records): a client may be killed at any time, and ends itself when it
loses the daemon.
"""
