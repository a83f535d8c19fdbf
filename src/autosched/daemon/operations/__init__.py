"""What users ask for, and how the daemon ends.

Files: user_session.py (checks roles and answers methods), control.py (alters jobs and units), retention.py (ended jobs
are removed), graceful_shutdown.py (stops once running steps have ended).
"""
