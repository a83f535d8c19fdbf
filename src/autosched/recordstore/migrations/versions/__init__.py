"""The changes of the schema, the first one makes it.

Files: schema_1.py.
"""
