"""Requests of users, and the end of the daemon.

Files: user_session.py (checks roles, has methods answered), job_answers.py, unit_answers.py, host_answers.py and
daemon_answers.py (the answers), answers.py (all of them), forecast.py (what may be expected of a job), retention.py
(ended jobs are removed), graceful_shutdown.py (stops once running steps have ended).
"""
