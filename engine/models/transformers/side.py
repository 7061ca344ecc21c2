"""What is asked of any causal language model without running it: what is asked of ours."""

from __future__ import annotations

from ..dense.side import INFO, open_side, side_of

__all__ = ["INFO", "open_side", "side_of"]
