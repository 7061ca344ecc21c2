"""`python -m sensorium` is the `sensorium` command."""

from __future__ import annotations

from .actors.cli import main

if __name__ == "__main__":
    main()
