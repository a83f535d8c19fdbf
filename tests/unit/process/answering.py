"""A child for tests: it answers each request, or misbehaves."""

import os
import signal
import subprocess
import sys

from autosched.model import JobFailure
from autosched.process.pipe_messages import line

if __name__ == "__main__":
    out = int(sys.argv[1])
    for asked in sys.stdin:
        match asked.split():
            case ["die", code]:
                sys.exit(int(code))
            case ["crash"]:
                os.kill(os.getpid(), signal.SIGSEGV)
            case ["hang"]:
                signal.pause()
            case ["leave"]:
                left = subprocess.Popen(["sleep", "600"])
                os.write(out, line(JobFailure("pid", str(left.pid))))
            case words:
                print("printed", flush=True)
                os.write(out, line(JobFailure("said", " ".join([*sys.argv[2:], *words]))))
