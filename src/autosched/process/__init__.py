"""Child processes: started, watched and ended.

Files: detached_process.py (one that outlives its parent), forked_workers.py (warm, pinned, killable workers).
"""
