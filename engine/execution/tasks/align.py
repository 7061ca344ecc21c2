"""Align: one teacher-forced forward, whose cross-attention says when each token was spoken."""

from __future__ import annotations

from ....protocols.engine.messages import Align, AnyRequest, TokensAligned
from ...models.base import AligningModel, EncoderOutput, Model


def align(model: Model, request: AnyRequest, output: EncoderOutput | None) -> TokensAligned:
    """The boundaries of the text tokens of `request`, whose item is encoded as `output`.

    Raises ValueError with a message for the client.
    """
    assert isinstance(request.task, Align)
    if output is None:
        raise ValueError("the encoded window of this request is gone")
    if not isinstance(model, AligningModel):
        raise ValueError("this model has no times of tokens")
    boundaries = model.align(request.task, request.prompt_token_ids, output)
    return TokensAligned(request.request_id, boundaries)
