"""What `transformers` makes of a window by a CTC model: tokens, and the rows that say them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from support.transducing import FloatArray
from transformers import ParakeetForCTC


class SaidToken(NamedTuple):
    """A run of rows with one label."""

    token_id: int
    start: int
    end: int
    logprob: float
    """Of the surest row."""


def said_in(model: ParakeetForCTC, windows: Sequence[FloatArray]) -> list[list[SaidToken]]:
    """Of features [mel bins, frames], as one padded batch: labels without repetitions and blank."""
    longest = max(each.shape[1] for each in windows)
    batch = torch.zeros(len(windows), longest, windows[0].shape[0])
    mask = torch.zeros(len(windows), longest, dtype=torch.bool)
    for index, each in enumerate(windows):
        batch[index, : each.shape[1]] = torch.from_numpy(each.T.copy())
        mask[index, : each.shape[1]] = True
    with torch.no_grad():
        sequences = model.generate(input_features=batch, attention_mask=mask)
        logprobs = model(input_features=batch, attention_mask=mask).logits.log_softmax(-1)
    found = []
    for labels, each in zip(sequences.tolist(), logprobs, strict=True):
        said, start = [], 0
        for label, rows in groupby(labels):
            end = start + len(list(rows))
            if label != model.config.pad_token_id:
                said.append(SaidToken(label, start, end, float(each[start:end, label].max())))
            start = end
        found.append(said)
    return found
