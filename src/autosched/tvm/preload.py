"""What the fork server imports once, so that each worker is a fork and not a start of TVM."""

from autosched.tvm import building, intrinsics, profiling  # noqa: F401

intrinsics.install()
