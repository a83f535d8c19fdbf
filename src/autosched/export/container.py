"""Packs a network as a folder from which a container is built: a service that answers over HTTP."""

from pathlib import Path

from autosched.export import network_file
from autosched.export.contents import Contents
from autosched_runtime.version import __version__ as RUNTIME

SERVICE = "serve.py"
CONTAINERFILE = """\
# Build and run:  podman build -t {tag} .  &&  podman run --rm -p 8000:8000 {tag}
FROM docker.io/library/python:3.12-slim
WORKDIR /network
COPY requirements.txt {wheel}./
RUN pip install --no-cache-dir --requirement requirements.txt
COPY {file} {service} ./
USER 1000
EXPOSE 8000
HEALTHCHECK CMD ["python", "{service}", "--healthy"]
CMD ["python", "{service}"]
"""


def files(contents: Contents, runtime: Path | None) -> dict[str, bytes]:
    """Return the folder's files by name. `runtime`: the runtime's wheel; None: it is installed from an index."""
    file = f"{contents.name}{network_file.SUFFIX}"
    words = {
        "tag": contents.name.lower(), "file": file, "service": SERVICE,
        "wheel": f"{runtime.name} " if runtime is not None else "",
    }  # fmt: skip
    service = Path(__file__).with_name("container_files").joinpath(SERVICE).read_text().replace("NETWORK.asn", file)
    return {
        "Containerfile": CONTAINERFILE.format(**words).encode(),
        "requirements.txt": requirements(runtime),
        file: network_file.content(contents),
        SERVICE: service.encode(),
        **({runtime.name: runtime.read_bytes()} if runtime is not None else {}),
        **contents.texts(),
    }


def requirements(runtime: Path | None) -> bytes:
    """Return the packages that a network needs, for pip. `runtime`: as for `files`."""
    wanted = f"./{runtime.name}" if runtime is not None else f"autosched-runtime>={RUNTIME}"
    return f"numpy>=1.24\n{wanted}\n".encode()
