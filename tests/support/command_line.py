"""The command line in tests: run to its end in this process, or serving in one of its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pytest
from sensorium.actors import commands
from sensorium.actors.telemetry import logs

SENSORIUM = (sys.executable, "-c", "from sensorium.actors.cli import main; main()")
QUICK = {"SENSORIUM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "SENSORIUM_KERNELS": "default"}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


class Run(Protocol):
    def __call__(self, *arguments: str, **environment: str) -> Done: ...


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """What runs a command line to its end, in this process."""

    def result(*arguments: str, **environment: str) -> Done:
        for name, value in (QUICK | environment).items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        try:
            code = commands.run(arguments)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        logs.flush()
        return Done(code, *capfd.readouterr())

    root = logging.getLogger()
    handlers, level, interval = root.handlers[:], root.level, sys.getswitchinterval()
    yield result
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(capture=False)
    sys.setswitchinterval(interval)


@contextmanager
def serving(
    *arguments: str, command: Sequence[str] = SENSORIUM, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and its URL; killed at the end if it still runs."""
    with subprocess.Popen(
        [*command, "serve", *arguments],
        env=os.environ | QUICK | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on http://127.0.0.1:"), process.communicate()
            yield process, line.removeprefix("listening on ").strip()
        finally:
            process.kill()
