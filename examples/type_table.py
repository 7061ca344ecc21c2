"""Checks every model type of a table in a process that may die or hang, and keeps what is known.

Used by `model_table.py` and `media_table.py`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

TIME_LIMIT_S: Final = 1800
"""Of one type: a few seconds on a machine with nothing else to do."""
Result = dict[str, str]
"""Of a type: `state` (runs, refused, fails), `path` and `words`."""
Check = Callable[[str], Result]


def _child(check: Check, model_type: str, pipe: Connection) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    pipe.send(check(model_type))


def check_separately(check: Check, model_type: str) -> Result:
    """What `check` says of a type, in another process, for no longer than the limit."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(check, model_type, there))
    process.start()
    there.close()
    result: Result = {"state": "fails", "words": f"not done after {TIME_LIMIT_S} s"}
    if here.poll(TIME_LIMIT_S):
        try:
            result = here.recv()
        except EOFError:
            result = {"state": "fails", "words": "its process died"}
    process.kill()
    process.join()
    return result


def make_table(
    description: str | None,
    check: Check,
    every: Sequence[str],
    known_file: Path,
    write_table: Callable[[dict[str, Result]], None],
) -> None:
    """The command line of a table: check what is not known yet of `every` type, and write it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--types", nargs="*", help="check these (again) and no others")
    parser.add_argument("--again", action="store_true", help="check what does not run again")
    parser.add_argument("--all", action="store_true", help="forget what is known")
    parser.add_argument("--write", action="store_true", help="check nothing, and write what is known")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    results: dict[str, Result] = {}
    if known_file.exists() and not options.all:
        results = json.loads(known_file.read_text())
    for model_type in [] if options.write else options.types or every:
        known = results.get(model_type)
        if not options.types and known and not (options.again and known["state"] != "runs"):
            continue
        results[model_type] = check_separately(check, model_type)
        known_file.parent.mkdir(exist_ok=True)
        known_file.write_text(json.dumps(results, indent=1, sort_keys=True))
        print(model_type, results[model_type]["state"], results[model_type].get("words", ""), flush=True)
    write_table(results)
    print(Counter(each["state"] for each in results.values()), "of", len(every))
