"""Child processes: started, watched and ended.

Files: detached_process.py (one that outlives its parent).
"""
