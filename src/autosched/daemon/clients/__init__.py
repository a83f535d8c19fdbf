"""The processes that host jobs, as the daemon has them: started, watched, taken over, told what to run."""
