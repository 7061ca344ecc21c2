"""What faces clients can run where there is no torch: a gateway needs none, its engine does."""

from __future__ import annotations

import subprocess
import sys

from sensorium.engine.models.embedded import CHECKPOINTS

WITHOUT_TORCH = """
import pkgutil, sys
from importlib import import_module
from pathlib import Path

sys.modules["torch"] = None  # importing it, anywhere, is an ImportError
num = 0
rooms = import_module("sensorium.actors").__path__
for room in pkgutil.iter_modules(rooms, "sensorium.actors."):
    if not room.ispkg or room.name in ("sensorium.actors.inference", "sensorium.actors.local"):
        continue
    for module in pkgutil.walk_packages(import_module(room.name).__path__, f"{room.name}."):
        import_module(module.name)
        num += 1
import_module("sensorium.actors.server")
assert num > 100, num
assert "transformers" not in sys.modules, "half a second, for who has a chat template"

from sensorium.engine.text.chat_template import ChatTemplate
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.protocols.chat.request import parse_chat

text = TextTokenizer.from_folder(Path(sys.argv[1]))
body = b'{"messages": [{"role": "user", "content": "good morning"}]}'
assert ChatTemplate(text).encode(parse_chat(body)[1])
loaded = [name for name, module in sys.modules.items() if name.split(".")[0] == "torch" and module]
assert not loaded, loaded
"""


def test_nothing_but_what_runs_models_loads_torch() -> None:
    """Every package there is, new ones included, but the two that hold engines."""
    folder = CHECKPOINTS / "tiny-qwen3-asr"
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


BEGUN_FIRST = """
import sys
from sensorium.actors import commands
from sensorium.actors.engine_process.process import EngineProcess

def begun(process):
    sys.exit(", ".join({"numpy", "starlette", "sensorium.actors.server"} & sys.modules.keys()) or 0)

EngineProcess.begun = begun
commands.run(["serve", "tiny-whisper"])
sys.exit("no process was begun")
"""


def test_models_are_loaded_while_what_faces_clients_is_imported() -> None:
    """Each takes seconds of a processor, so neither waits for the other."""
    done = subprocess.run([sys.executable, "-c", BEGUN_FIRST], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


TORCH_IS_WANTED = """
import gc, sys
from sensorium.actors import cli
from sensorium.actors.engine_process.__main__ import open_next

class Wanted:
    def find_spec(name, path, target=None):
        if name == "torch":
            raise LookupError(f"{gc.isenabled()=}")

def models_process():
    open_next(None, ())

def command(*arguments):
    sys.argv[1:] = arguments
    cli.main()

sys.meta_path.insert(0, Wanted)
for starts, arguments in (
    (models_process, ()),
    (command, ("models",)),
    (command, ("serve", "--engine-process", "off")),
):
    try:
        starts(*arguments)
    except LookupError as error:
        assert gc.isenabled() and gc.get_freeze_count() > 10_000
        print(error)
"""


def test_packages_are_not_looked_through_for_garbage_while_they_are_imported() -> None:
    """Neither torch by what runs models, nor anything by what faces clients; and not later either."""
    done = subprocess.run([sys.executable, "-c", TORCH_IS_WANTED], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (3 * "gc.isenabled()=False\n", "")
