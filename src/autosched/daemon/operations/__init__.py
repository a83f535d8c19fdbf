"""Methods of users and operators, and graceful shutdown.

Files: user_session.py (checks roles), job_answers.py, unit_answers.py, host_answers.py and daemon_answers.py (the
answers), forecast.py (predicts a job's result), retention.py (prunes ended jobs), graceful_shutdown.py (stops when
running steps have ended).
"""
