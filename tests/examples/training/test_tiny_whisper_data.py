"""What there is to train on is made by processes that need not load everything again, each of them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_SCRIPT: Final = """
import sys
from functools import partial
from pathlib import Path


def note(shard: int, folder: Path) -> None:
    (folder / str(shard)).write_text(str("torch" in sys.modules))


if __name__ == "__main__":
    from tiny_whisper_data import write_missing

    folder = Path(sys.argv[1])
    write_missing(partial(note, folder=folder), [folder / "0", folder / "1"], 1)
"""


def test_a_process_for_a_shard_begins_with_what_shards_are_made_with(tmp_path: Path) -> None:
    script, folder = tmp_path / "noting.py", tmp_path / "shards"
    script.write_text(_SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, script, folder], env=environment, check=True, stdout=subprocess.DEVNULL)
    assert [(folder / name).read_text() for name in "01"] == ["True", "True"]
