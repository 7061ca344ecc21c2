"""A process that runs engines in a working directory of its own: `elsewhere.py FOLDER DESCRIPTOR NAME…`.

It opens models by relative paths, so that their folders are nowhere for who started it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # its own folder has names of packages

from sensorium.actors.engine_process.__main__ import open_next
from sensorium.actors.engine_process.child import run_child

if __name__ == "__main__":
    os.chdir(sys.argv[1])
    run_child(int(sys.argv[2]), open_next)
