"""Keeps these tests out of ordinary runs: Triton decides on its first import whether it interprets, for the
whole process, so `tests/kernels/test_interpreter.py` runs them in one of their own."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
