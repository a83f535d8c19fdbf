"""Alembic's migrations of the record store: one file in versions/ for each change of its schema.

Files: env.py (runs them, on a connection that is open already), versions/ (the changes).
"""
