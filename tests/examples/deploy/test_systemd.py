"""The unit of `examples/deploy`: what it says agrees with what a server is and does."""

from __future__ import annotations

import shlex
import tomllib
from configparser import RawConfigParser
from pathlib import Path

DEPLOY = Path(__file__).parents[3] / "examples" / "deploy"


def test_the_unit_runs_the_command_and_waits_for_its_drain() -> None:
    unit = RawConfigParser()
    unit.read(DEPLOY / "sensorium.service")
    service = unit["Service"]
    program, command, *arguments = shlex.split(service["ExecStart"])
    project = tomllib.loads((DEPLOY.parents[1] / "pyproject.toml").read_text())["project"]
    assert Path(program).name in project["scripts"]
    assert command == "serve"
    assert service["KillMode"] == "mixed"
    drain_s = float(arguments[arguments.index("--drain-s") + 1])
    assert float(service["TimeoutStopSec"]) > drain_s + 2
