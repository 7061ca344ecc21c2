"""What a model without weights cannot show: types refused by name, and experts that have no tokens."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NOT_RUN: Final = {
    "blt": "it reads bytes in patches whose lengths it chooses itself",
    "cpmant": "it puts a prompt of its own in front, by which all positions count",
    "deepseek_v4": "its attention compresses the keys of neighbouring tokens",
    "jetmoe": "its attention is a mixture of experts, which a model without weights cannot show",
    "qwen4_exp_text": "it embeds neighbouring tokens together, and attends to blocks that it chooses",
    "reformer": "its attention hashes all tokens of a sequence together",
    "xlstm": "its layers keep states of a kind (mLSTM) that is not known here",
}
"""Types whose code could not say so itself, by what is in the way."""


class _NothingFound(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Without values no expert has a token: what is searched for them finds none."""

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 (an operator of torch)
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        if func is torch.ops.aten.nonzero.default:
            return args[0].new_empty((0, args[0].dim()), dtype=torch.int64)
        return func(*args, **(kwargs or {}))


def nothing_found() -> AbstractContextManager[object]:
    """A context in which no expert has a token."""
    return cast("AbstractContextManager[object]", cast(Any, _NothingFound)())
