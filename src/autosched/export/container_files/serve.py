"""A service with one network: POST /run takes and gives a .npz file, GET /health checks the network.

    curl --data-binary @inputs.npz http://localhost:8000/run --output outputs.npz

It needs autosched-runtime and NumPy. The word --healthy asks the running service for its health, for HEALTHCHECK.
"""

import io
import os
import sys
import urllib.request
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

import autosched_runtime

NETWORK = Path(__file__).with_name("NETWORK.asn")
PORT = int(os.environ.get("PORT", "8000"))
BYTES_MAX = 1 << 30
"""Maximum size of a request."""


class Server(ThreadingHTTPServer):
    """Has the network; each request has a thread."""

    network = autosched_runtime.load(NETWORK)


class Handler(BaseHTTPRequestHandler):
    """Answers one client."""

    server: Server
    timeout = 60.0
    """Seconds that a client may be silent."""

    def do_GET(self) -> None:
        """Checks that the network gives what it was verified with."""
        if self.path != "/health":
            return self.answer(404, b"ask for /health, or post to /run\n")
        network = self.server.network
        right = all(not list(sample.differing(network.run(sample.inputs))) for sample in network.samples())
        self.answer(200 if right else 500, b"fine\n" if right else b"outputs differ\n")

    def do_POST(self) -> None:
        """Runs the network with the arrays of a .npz file, by name."""
        size = int(self.headers.get("Content-Length", 0))
        if self.path != "/run":
            return self.answer(404, b"post a .npz file to /run\n")
        if size > BYTES_MAX:
            return self.answer(413, f"at most {BYTES_MAX} bytes\n".encode())
        try:
            with np.load(io.BytesIO(self.rfile.read(size)), allow_pickle=False) as given:
                outputs = self.server.network.run(dict(given))
        except (autosched_runtime.InvalidInput, ValueError, EOFError, zipfile.BadZipFile) as error:
            return self.answer(400, f"{error}\n".encode())
        names = [tensor.name for tensor in self.server.network.description.outputs]
        self.answer(200, archive(dict(zip(names, outputs, strict=True))))

    def answer(self, status: int, content: bytes) -> None:
        """Sends an answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def archive(arrays: dict[str, Any]) -> bytes:
    """A .npz file of arrays with any names."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as written:
        for name, array in arrays.items():
            with written.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return content.getvalue()


if __name__ == "__main__":
    if sys.argv[1:] == ["--healthy"]:
        urllib.request.urlopen(f"http://localhost:{PORT}/health", timeout=30.0)
    else:
        Server(("", PORT), Handler).serve_forever()
