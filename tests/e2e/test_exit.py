"""Programs and servers that end while native code still runs in a thread that nobody can stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from support.command_line import serving

pytestmark = pytest.mark.slow

START = """
import sys, threading, time
from sensorium import LocalEngine, SamplingOptions

opened, begun, closed = threading.Event(), threading.Event(), threading.Event()
"""
COMPILES = """
from sensorium.engine.execution import grammar_store

compile_grammar = grammar_store.compile_grammar


def compiling(*told):
    begun.set()
    return compile_grammar(*told)


grammar_store.compile_grammar = compiling
options = SamplingOptions(regex="a?" * 4000)  # a second
"""
STEPS = """
import torch
from sensorium.actors.inference import executor
from sensorium.engine.execution.runner import Runner

execute = Runner.execute


def executing(self, plan):
    if not opened.is_set():
        return execute(self, plan)
    begun.set()
    large = torch.ones(1000, 1000)
    while not closed.is_set():
        large @ large
    for _ in range(10):
        large @ large
    return execute(self, plan)


Runner.execute = executing
executor.STOP_GRACE_S = 0.01
options = None
"""
HANGS = """
import sys, threading
from sensorium.actors.cli import main
from sensorium.engine.execution import grammar_store


def compiling(*told):
    print("compiling", file=sys.stderr, flush=True)
    threading.Event().wait()


grammar_store.compile_grammar = compiling
main()
"""


@pytest.mark.parametrize("prepare", [COMPILES, STEPS], ids=["a grammar", "a step"])
def test_a_program_waits_for_what_it_cannot_stop(prepare: str) -> None:
    begin = """
        class Large:
            def __del__(self):
                time.sleep(3)  # an interpreter that has much to give back goes down for long

        large = Large()
        with LocalEngine("tiny-qwen3-vl", device="cpu", num_threads=1) as engine:
            opened.set()
            answer = engine.stream("Hello", options)
            begun.wait()
            answer.close()
        closed.set()
        sys.exit(7)
    """
    done = subprocess.run(
        [sys.executable, "-c", START + prepare + textwrap.dedent(begin)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 7, done.stderr


def test_a_server_waits_for_no_grammar() -> None:
    arguments = ("tiny-qwen3-vl", "--port", "0", "--engine-process", "off", "--drain-s", "0.1")
    body = {"prompt": "Hello", "structured_outputs": {"regex": "a+"}}
    with (
        serving(*arguments, command=(sys.executable, "-c", HANGS)) as (process, url),
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(httpx.post, f"{url}/v1/completions", json=body, timeout=60)
        assert process.stderr is not None
        while process.stderr.readline() != "compiling\n":
            pass
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
        assert (process.returncode, answer.result().status_code) == (0, 503), stderr
