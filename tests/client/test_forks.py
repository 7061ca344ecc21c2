"""The synchronous client in a forked child: its own connections for requests, an error for a live session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sensorium.client import Client, DialogueSession, RealtimeSession
from support.fake_server import finals, serve_realtime, serve_rest
from support.forks import in_fork

pytestmark = pytest.mark.slow

FORKED = "SDKError: this process was forked after the live session was opened"
CHUNK = bytes(4_800)
