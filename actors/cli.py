"""Entry point of the `sensorium` command: runs `actors/commands.py`, or says which packages it needs."""

from __future__ import annotations

import errno
import os
import sys
from typing import NoReturn

from .. import __version__
from .help import is_overview, overview
from .importing import importing
from .library_defaults import set_library_defaults
from .signals import LeavingAtOnce

_NEEDS = (
    "sensorium: this needs packages that are missing ({name}). In the folder of sensorium's sources:\n"
    "    pip install '.[cli]'      for transcribe, listen, chat, models --base-url and bench\n"
    "    pip install ./engine/checkpoints '.[serve]'    for all commands"
)
_BROKEN_PIPE = 141
"""What a shell calls a program that wrote where nobody reads any more, as into `| head -1`."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    _open_standard_streams()
    set_library_defaults(os.environ)
    try:
        code = _run()
    except (MemoryError, OSError, ImportError, RuntimeError, ExceptionGroup) as error:
        _leave_if_short(error)
        raise
    sys.exit(code)


def _run() -> int:
    try:
        code = _answer(sys.argv[1:])
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        _leave_without(error)
    except BrokenPipeError:
        _write_nowhere()
        code = _BROKEN_PIPE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _write_nowhere()
        sys.exit(f"sensorium: {error.strerror}")
    return code


def _answer(arguments: list[str]) -> int:
    if is_overview(arguments):
        print(overview())
        return 0
    if arguments == ["--version"]:
        print(__version__)
        return 0
    with LeavingAtOnce(), importing():
        from .commands import run
    return run(arguments)


def _leave_if_short(error: Exception) -> None:
    """End with one line where memory was refused; return where something else failed."""
    from ..engine.memory_limits import shortage
    from .telemetry.logs import flush

    if (problem := shortage(error)) is not None:
        flush()  # what led to it stands before it
        print(f"sensorium: {problem}", file=sys.stderr, flush=True)
        os._exit(1)  # without memory the interpreter cannot end in order


def _write_nowhere() -> None:
    """What is still to be written would fail again, at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_standard_streams() -> None:
    """Streams that whoever started this closed (`<&-`) are nothing to read from and nowhere to write to, for
    the models' process, too; else the first socket would be standard error. What an encoding has no sign for
    is escaped: the work of half an hour is not to be lost to a terminal."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            assert opened == number, "the lowest that is free"
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115 (as long as the process)
        if number:
            getattr(sys, name).reconfigure(errors="backslashreplace")


def _leave_without(error: ModuleNotFoundError) -> NoReturn:
    """Say what to install; a module of ours that is missing is our bug."""
    package = (error.name or "").partition(".")[0]
    if package == "sensorium":
        raise error
    sys.exit(_NEEDS.format(name=package))
