"""The changes of the schema; the first one creates it.

Files: schema_1.py (all tables), schema_1_0.py (the first release), schema_2.py (schedules by object code; imported
ones), schema_3.py (programs; hints for all backends of a template), schema_4.py (collected networks), schema_5.py,
schema_6.py (rankers).
"""
