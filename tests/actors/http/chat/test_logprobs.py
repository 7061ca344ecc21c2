"""Log-probabilities on the wire where tokens share a name, as parts of characters do."""

from __future__ import annotations

from pathlib import Path

from sensorium.actors.http.chat.logprobs import completion_logprobs, prompt_logprob_list
from sensorium.engine.text.token_text import TokenText
from sensorium.engine.text.tokenizer import TextTokenizer
from support.text_folder import byte_level_tokenizer, write_tokenizer


def test_of_tokens_with_one_name_the_best_is_told(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, byte_level_tokenizer())
    tokens = TokenText(TextTokenizer.from_folder(tmp_path))
    parts = [token_id for token_id in range(256) if tokens.name(token_id) == "�"]
    a = next(token_id for token_id in range(256) if tokens.name(token_id) == "a")
    best = ((parts[0], -0.5), (parts[1], -1.0), (a, -2.0))
    found = completion_logprobs(tokens, [a], [-2.0], [best])
    assert found.top_logprobs == [{"�": -0.5, "a": -2.0}]
    assert list(found.top_logprobs[0] or ()) == ["�", "a"]  # the best first


def test_of_a_prompt_of_one_token_nothing_predicts_it(tmp_path: Path) -> None:
    """vLLM's list is as long as the prompt, and begins with null."""
    write_tokenizer(tmp_path, byte_level_tokenizer())
    tokens = TokenText(TextTokenizer.from_folder(tmp_path))
    assert prompt_logprob_list(tokens, [65], None, 0) == [None]
    assert prompt_logprob_list(tokens, [65], None, None) is None
