"""A chat template, tried before a server renders it: in a separate process, with bounds on time and memory.

A template is a program, and a checkpoint's comes from elsewhere: it may never end, or take all memory in one
operation that no thread can interrupt. This module is both sides: `fault_of` starts the process, and run as a
module it is that process. It needs Jinja alone, set up as `transformers` does, since that takes a second more
to import. Read `actors/served_model.py` for who asks.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ...protocols.errors import ModelLoadError

MAX_SOURCE: Final = 1 << 20
"""Characters of a template; published ones have some thousands."""
MAX_RENDERED: Final = 1 << 20
"""Characters that a conversation of a few words may become."""
MAX_CPU_S: Final = 5
"""Of processor time, for compiling it and for all conversations together."""
_MAX_WALL_S: Final = 60.0
"""Where the machine is so busy that no processor time is had."""
_MAX_BYTES: Final = 512 << 20
"""Of address space, on top of what the process has before it begins."""
_OUT_OF_MEMORY, _TOO_LONG = 3, 4
"""Exit statuses."""
_CALL: Final = {"id": "abcdefghi", "type": "function", "function": {"name": "now", "arguments": {}}}
_TOOL: Final = {
    "type": "function",
    "function": {"name": "now", "description": "Tells.", "parameters": {"type": "object", "properties": {}}},
}
_QUESTION: Final = {"role": "user", "content": "Hello"}
_IN_PARTS: Final = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
_ANSWER: Final = {"role": "assistant", "content": "Hello"}
_USE: Final = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_RESULT: Final = {"role": "tool", "name": "now", "tool_call_id": "abcdefghi", "content": "noon"}
_CONVERSATIONS: Final[tuple[tuple[list[dict[str, Any]], list[dict[str, Any]] | None], ...]] = (
    ([_QUESTION], None),
    ([_IN_PARTS], None),
    ([{"role": "system", "content": "Hello"}, _QUESTION, _ANSWER, _QUESTION], None),
    ([_QUESTION, _USE, _RESULT, _ANSWER, _QUESTION], [_TOOL]),
)
"""Messages and tools."""


@lru_cache(maxsize=32)
def fault_of(
    source: str, names: tuple[tuple[str, str], ...] = (), *, max_cpu_s: int = MAX_CPU_S
) -> str | None:
    """Why a template must not be rendered, to be read after its name; None where nothing speaks against it.

    `names` are variables. Blocking, for some tenths of a second up to `max_cpu_s` of processor time. What a
    template refuses is no fault. Raises OSError where no process can be started, and ModelLoadError where it
    fails by itself.
    """
    if len(source) > MAX_SOURCE:
        return f"has {len(source)} characters; allowed: {MAX_SOURCE}"
    command = (sys.executable, "-P", "-m", __name__, str(max_cpu_s))
    streams: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
    }
    with subprocess.Popen(command, process_group=0, **streams) as process:
        assert process.stdin is not None, "it is a pipe"
        assert process.stderr is not None, "it is a pipe"
        try:
            with suppress(BrokenPipeError):  # it has ended, as its status says
                process.stdin.write(json.dumps([source, dict(names)]).encode())
                process.stdin.close()
            # Whoever renders needs it next; meanwhile the trial runs.
            from transformers.utils import chat_template_utils  # noqa: F401

            status = process.wait(_MAX_WALL_S)
        except subprocess.TimeoutExpired:
            return f"was not rendered within {_MAX_WALL_S:g} s"
        finally:
            process.kill()
        errors = process.stderr.read(4096).decode(errors="replace").strip().splitlines()
    return _meaning(status, errors, max_cpu_s)


def _meaning(status: int, errors: list[str], max_cpu_s: int) -> str | None:
    if status == 0:
        return None
    if status == _OUT_OF_MEMORY:
        return f"takes more than {_MAX_BYTES >> 20} MiB of memory for a conversation of a few words"
    if status == _TOO_LONG:
        return f"makes more than {MAX_RENDERED} characters of a conversation of a few words"
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"does not end within {max_cpu_s} s of processor time for a conversation of a few words"
    if status < 0:
        return f"ends the process that renders it, by signal {-status}"
    raise ModelLoadError(f"the chat template cannot be tried: {errors[-1] if errors else f'status {status}'}")


class _Generation(Extension):
    """The tag around what a model writes, which `transformers` has for training."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Parser) -> list[Node]:
        """What stands in it, as it is."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, **{"ensure_ascii": False} | options
    )
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.globals["raise_exception"] = _refuse
    return environment


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _try(source: str, names: Mapping[str, str]) -> int:
    """The exit status."""
    try:
        template = _environment().from_string(source)
    except MemoryError:
        return _OUT_OF_MEMORY
    except Exception:  # as it will when it is rendered
        return 0
    for messages, tools in _CONVERSATIONS:
        num_chars = 0
        try:
            for piece in template.generate(
                **names, messages=messages, tools=tools, documents=None, add_generation_prompt=True
            ):
                num_chars += len(piece)
                if num_chars > MAX_RENDERED:
                    return _TOO_LONG
        except MemoryError:
            return _OUT_OF_MEMORY
        except Exception:  # a template may fail in any way on what it does not expect
            continue
    return 0


def _limit(max_cpu_s: int) -> None:
    """Before what comes from elsewhere is read."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, max_cpu_s),
        (resource.RLIMIT_AS, _address_space() + _MAX_BYTES),
    ):
        _, most = resource.getrlimit(kind)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        with suppress(ValueError, OSError):  # a system that has no such limit
            resource.setrlimit(kind, (value, value))


def _address_space() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        return 1 << 30


if __name__ == "__main__":
    _limit(int(sys.argv[1]))
    given, variables = json.loads(sys.stdin.buffer.read())
    sys.exit(_try(given, variables))
