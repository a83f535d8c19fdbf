"""What the fork server imports once, so that each worker is a fork and not a start of TVM."""

import tvm  # noqa: F401

from autosched.tvm import building, intrinsics, profiling  # noqa: F401

intrinsics.install()

import tvm.s_tir.meta_schedule  # noqa: E402,F401
