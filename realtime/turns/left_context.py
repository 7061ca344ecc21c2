"""What a turn may be heard behind: the sound of earlier ones, kept for that long after they were answered.

A model hears a short turn better behind what was said just before it. It begins with the beginning of an
earlier turn, for half a word is worse than none. Positions in samples of one channel's timeline; which audio
is needed for turns themselves is the business of `listener.py`.
"""

from __future__ import annotations

from collections import deque


class LeftContext:
    """Where earlier turns of a channel begin, as far back as the client wants them heard."""

    def __init__(self) -> None:
        self._reach = 0
        self._starts: deque[int] = deque()
        self.kept_from = 0
        """Audio before that is gone."""

    def configure(self, reach: int) -> None:
        """So many samples in front of a turn may be heard with it, of those that begin later; 0: none."""
        self._reach = reach

    def began(self, start: int) -> None:
        """A turn that begins there, behind the others, is over."""
        self._starts.append(start)

    def clear(self) -> None:
        """What was received so far is not to be heard any more."""
        self._starts.clear()

    def before(self, start: int) -> tuple[int, ...]:
        """Where turns begin that one which begins at `start` may be heard behind, ascending."""
        return tuple(each for each in self._starts if start - self._reach <= each < start)

    def forget(self, keep_from: int) -> bool:
        """Note that audio before `keep_from` is not kept; True unless it was not before."""
        if keep_from <= self.kept_from:
            return False
        self.kept_from = keep_from
        while self._starts and self._starts[0] < keep_from:
            self._starts.popleft()
        return True
