"""What a docstring says of a function and of each of its parameters: NumPy's, Google's and Sphinx's styles.

Read next: `client/chat/tools.py`, which tells it to models.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Final

_SPHINX: Final = re.compile(r":param (?:[^:]*\s)?(\w+):\s*(.*)")
_SPHINX_OTHER: Final = re.compile(r":(?:type|raises?|returns?|rtype|yields?)\b")
_GOOGLE_HEAD: Final = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_GOOGLE: Final = re.compile(r"\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)")
_NUMPY: Final = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?$")
_ARGUMENTS: Final = frozenset({"Args", "Arguments", "Parameters"})


def read_docstring(function: object) -> tuple[str, dict[str, str]]:
    """The text in front of any section, and what is said of each parameter by name."""
    lines = (inspect.getdoc(function) or "").splitlines()
    summary: list[str] = []
    found: dict[str, list[str]] = {}
    section = ""
    """Which one these lines are in: "", "numpy" and "google" for parameters, "other"."""
    name = ""
    for index, line in enumerate(lines):
        below = lines[index + 1] if index + 1 < len(lines) else ""
        if re.fullmatch(r"-{3,}\s*", below) and line.strip() and not line.startswith(" "):
            section, name = ("numpy" if line.strip() in _ARGUMENTS else "other"), ""
        elif head := _GOOGLE_HEAD.match(line):
            section, name = ("google" if head[1] in _ARGUMENTS else "other"), ""
        elif match := _SPHINX.match(line):
            section, name = "sphinx", match[1]
            found[name] = [match[2]]
        elif _SPHINX_OTHER.match(line):
            section, name = "other", ""
        elif section == "":
            summary.append(line)
        elif section != "other":
            name = _parameter(line, section, name, found)
    return _joined(summary), {each: text for each, words in found.items() if (text := _joined(words))}


def _parameter(line: str, section: str, name: str, found: dict[str, list[str]]) -> str:
    """Note a line of a section of parameters; the name that the lines below it are of."""
    indent = len(line) - len(line.lstrip())
    if section == "numpy" and not indent:
        head = _NUMPY.match(line)
        name = head[1] if head else ""
        if name:
            found[name] = []
    elif section == "google" and 0 < indent <= 4 and (head := _GOOGLE.match(line.strip())):
        name = head[1]
        found[name] = [head[2]]
    elif name:
        found[name].append(line.strip())
    return name


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines).strip()
