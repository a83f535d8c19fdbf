"""Packs a tuned network for where it runs: one file, a wheel, a folder, a C project, a container.

Files: exported.py (the forms), contents.py (reads a tuned network), card.py (its description), licences.py,
network_file.py (NAME.asn), python_wheel.py, container.py.

The folder c_project has our library for C with examples, container_files a service.
"""

from autosched.export.exported import Form, export

__all__ = ["Form", "export"]
