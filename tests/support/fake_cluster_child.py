"""The process of a cluster's engine with fake engines: `fake_cluster_child.py DESCRIPTOR NAME…`."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # its own folder has names of packages

from sensorium.actors.cluster.child import run_child
from support.fake_process import open_next

COMMAND = (sys.executable, __file__)

if __name__ == "__main__":
    run_child(int(sys.argv[1]), open_next)
