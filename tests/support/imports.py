"""What the source files say, and whom they know."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Everything a source file says."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def imported(path: Path) -> frozenset[str]:
    """Absolute names of the modules a file imports, at its top or later, and of what it takes from them."""
    package = ("sensorium", *path.relative_to(ROOT).parent.parts)
    names = set[str]()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            names.add(".".join(filter(None, (base, node.module))))
            names |= {".".join(filter(None, (base, node.module, name.name))) for name in node.names}
        elif isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
    return frozenset(names)
