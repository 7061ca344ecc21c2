"""How a text goes on that can only grow: behind a transcript that contradicts it, and behind another turn.

For the flat dialect (`realtime/vllm_session.py`), which can take nothing back. Knows words, not sessions.
"""

from __future__ import annotations

from typing import Final

from ...protocols.shared.scripts import is_wide
from .pieces import pieces, plain

_WINDOW: Final = 32
"""Words on both sides that are compared to find where a contradicted text goes on."""


def continuation(released: str, final: str) -> str:
    """What of `final` follows the part that `released` stands for.

    Where `final` begins with `released` that is the rest. Else the beginning of `final` that is nearest to
    `released` in edit distance over words is taken as said; of equally near ones the longest. Behind the
    common beginning at most 32 words are compared, so the cost is bounded.
    """
    if final.startswith(released):
        return final[len(released) :]
    old, new = pieces(released), pieces(final)
    old_words, new_words = [plain(piece) for piece in old], [plain(piece) for piece in new]
    common = 0
    while common < min(len(old), len(new)) and old_words[common] == new_words[common]:
        common += 1
    start = max(common, len(old) - _WINDOW)
    first = max(common, start - _WINDOW)
    nearby = new_words[first : start + 2 * _WINDOW]
    # Compared from the first difference on, the beginning of `nearby` counts; from later on it is anywhere.
    row = list(range(len(nearby) + 1)) if start == common else [0] * (len(nearby) + 1)
    for word in old_words[start:]:
        above, row = row, [row[0] + 1]
        for index, other in enumerate(nearby):
            row.append(min(above[index] + (word != other), above[index + 1] + 1, row[index] + 1))
    least = min(row)
    nearest = max(index for index, cost in enumerate(row) if cost == least)
    return "".join(new[first + nearest :])


def joint(before: str, after: str) -> str:
    """What two texts of a speaker are joined by: a space, or nothing where the script has none."""
    spaced = before[-1].isspace() or after[0].isspace()
    return "" if spaced or (is_wide(before[-1]) and is_wide(after[0])) else " "
