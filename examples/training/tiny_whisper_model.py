"""The network of tiny-whisper: its shape, its training losses and its checkpoint folder.

The network is `transformers`' Whisper, so the exported folder loads anywhere Whisper does;
only the encoder is driven by hand here, to train on windows shorter than the full one.
`train_tiny_whisper.py` holds the loop, `tiny_whisper_data.py` makes the batches.
"""

import json
from pathlib import Path
from typing import Any, cast

import torch
from checkpoint_files import replaced_files, write_weights
from grouped_attention import GROUPED
from speech_grammar import LANGUAGES
from tiny_whisper_data import NUM_MELS, Batch, Corpus, feature_extractor, padded_features
from tiny_whisper_tokens import (
    END_OF_TEXT,
    LETTERS,
    MAX_TARGET_POSITIONS,
    NO_TIMESTAMPS,
    START_OF_PREVIOUS,
    START_OF_TRANSCRIPT,
    TRANSCRIBE,
    WINDOW_S,
)
from torch import nn
from torch.nn import functional
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)

WIDTH = 192
NUM_HEADS = 4
NUM_ENCODER_LAYERS = 4
NUM_DECODER_LAYERS = 2
CTC_WEIGHT = 0.4
# Speech may start this late in a window (2 s); openai/whisper allows 1 s.
MAX_INITIAL_TIMESTAMP_INDEX = 100

Head = tuple[int, int]


def token_id(tokenizer: WhisperTokenizer, token: str) -> int:
    """The id of one token by its text."""
    return cast(int, tokenizer.convert_tokens_to_ids(token))


def model_config(tokenizer: WhisperTokenizer) -> WhisperConfig:
    """The network's shape; the vocabulary is exactly the tokenizer's."""
    end = token_id(tokenizer, END_OF_TEXT)
    return WhisperConfig(
        vocab_size=len(tokenizer),
        num_mel_bins=NUM_MELS,
        d_model=WIDTH,
        encoder_layers=NUM_ENCODER_LAYERS,
        decoder_layers=NUM_DECODER_LAYERS,
        encoder_attention_heads=NUM_HEADS,
        decoder_attention_heads=NUM_HEADS,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        max_source_positions=WINDOW_S * 50,
        max_target_positions=MAX_TARGET_POSITIONS,
        dropout=0.0,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=token_id(tokenizer, START_OF_TRANSCRIPT),
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )


class TrainedWhisper(nn.Module):
    """The network with a CTC head on its encoder, which finds the monotonic alignment early."""

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        config._attn_implementation = GROUPED
        self.whisper = WhisperForConditionalGeneration(config)
        self.ctc = nn.Linear(config.d_model, len(LETTERS) + 1)

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross entropy of the decoder and CTC loss of the encoder, both means."""
        bfloat16 = torch.autocast("cpu", torch.bfloat16)
        with bfloat16:
            states = self.encoded(batch.features)
            decoder = cast(Any, self.whisper.model.decoder)
            hidden = decoder(
                input_ids=batch.inputs, encoder_hidden_states=states, use_cache=False
            ).last_hidden_state
            # Only the predicted positions go through the vocabulary, the costliest layer.
            predicted = batch.labels != -100
            logits = self.whisper.proj_out(hidden[predicted])
            ctc_logits = self.ctc(states)
        loss = functional.cross_entropy(logits.float(), batch.labels[predicted])
        ctc_loss = functional.ctc_loss(
            ctc_logits.float().log_softmax(-1).transpose(0, 1),
            batch.letters,
            ((batch.num_frames + 1) // 2).clamp(max=states.shape[1]),
            batch.num_letters,
            blank=len(LETTERS),
            zero_infinity=True,
        )
        return loss, ctc_loss

    def encoded(self, features: torch.Tensor) -> torch.Tensor:
        """Encoder states [batch, frames / 2, width] of a window of any length."""
        encoder = cast(Any, self.whisper.model.encoder)
        states = functional.gelu(encoder.conv1(features))
        states = functional.gelu(encoder.conv2(states)).transpose(1, 2)
        states = states + encoder.embed_positions.weight[: states.shape[1]]
        for layer in encoder.layers:
            states = layer(states, None)
        return cast(torch.Tensor, encoder.layer_norm(states))


def generation_config(tokenizer: WhisperTokenizer, heads: list[Head]) -> GenerationConfig:
    """Whisper's generation options for this vocabulary.

    The end of text is not suppressed at the beginning: silence has an empty transcript.
    """
    end = token_id(tokenizer, END_OF_TEXT)
    kept = (END_OF_TEXT, NO_TIMESTAMPS)
    suppressed = [token_id(tokenizer, token) for token in tokenizer.all_special_tokens if token not in kept]
    return GenerationConfig(
        is_multilingual=True,
        lang_to_id={f"<|{name}|>": token_id(tokenizer, f"<|{name}|>") for name in LANGUAGES},
        task_to_id={"transcribe": token_id(tokenizer, TRANSCRIBE)},
        task="transcribe",
        no_timestamps_token_id=token_id(tokenizer, NO_TIMESTAMPS),
        prev_sot_token_id=token_id(tokenizer, START_OF_PREVIOUS),
        decoder_start_token_id=token_id(tokenizer, START_OF_TRANSCRIPT),
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        suppress_tokens=sorted(suppressed),
        begin_suppress_tokens=[token_id(tokenizer, "Ġ")],
        max_initial_timestamp_index=MAX_INITIAL_TIMESTAMP_INDEX,
        max_length=MAX_TARGET_POSITIONS,
        return_timestamps=False,
        alignment_heads=[list(head) for head in heads],
        alignment_is_rough=True,
    )


def export(
    weights: dict[str, torch.Tensor],
    tokenizer: WhisperTokenizer,
    heads: list[Head],
    folder: Path,
) -> None:
    """Replace the checkpoint folder's files one by one, each at once. Others, such as the model card, stay.
    The weights are loaded as float32."""
    config = model_config(tokenizer)
    config.dtype = torch.float32
    config.architectures = ["WhisperForConditionalGeneration"]
    with replaced_files(folder) as fresh:
        config.save_pretrained(fresh)
        generation_config(tokenizer, heads).save_pretrained(fresh)
        tokenizer.save_pretrained(str(fresh))
        feature_extractor().save_pretrained(fresh)
        _write_vocabulary(fresh)
        write_weights(fresh, weights, "proj_out.weight")


def _write_vocabulary(folder: Path) -> None:
    """`vocab.json` and `merges.txt` for readers that do not know `tokenizer.json`."""
    model = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
    vocabulary = json.dumps(model["vocab"], ensure_ascii=False, indent=0)
    (folder / "vocab.json").write_text(vocabulary + "\n", "utf-8")
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", "utf-8")


@torch.no_grad()
def alignment_heads(
    weights: dict[str, torch.Tensor],
    tokenizer: WhisperTokenizer,
    corpus: Corpus,
    indices: list[int],
    num_heads: int = 4,
) -> list[Head]:
    """The decoder heads whose cross-attention looks most at the word being written.

    Every head's score is its attention mass within 0.1 s of the spoken word, a mean over
    the text tokens of the given recordings. Those within 5 % of the best are taken: worse ones
    make the alignment worse.
    """
    config = model_config(tokenizer)
    config._attn_implementation = "eager"
    model = WhisperForConditionalGeneration(config)
    model.load_state_dict(weights)
    model.eval()
    prefix = [token_id(tokenizer, token) for token in (START_OF_TRANSCRIPT, "", TRANSCRIBE, NO_TIMESTAMPS)]
    scores = torch.zeros(config.decoder_layers, config.decoder_attention_heads)
    count = 0
    for index in indices:
        entry = corpus.entries[index]
        prefix[1] = token_id(tokenizer, f"<|{entry.language}|>")
        ids, spans = list(prefix), []
        for word, start_s, end_s in entry.words:
            tokens = cast(list[int], tokenizer.encode(f" {word}", add_special_tokens=False))
            ids += tokens
            span = slice(max(0, int((start_s - 0.1) * 50)), int((end_s + 0.1) * 50) + 1)
            spans += [span] * len(tokens)
        output = model(
            input_features=padded_features([corpus.frames(index)], WINDOW_S * 100),
            decoder_input_ids=torch.tensor([ids[:MAX_TARGET_POSITIONS]]),
            output_attentions=True,
        )
        attention = torch.stack(output.cross_attentions)[:, 0]
        # The position before a token is the one that predicts it.
        for position, span in enumerate(spans[: MAX_TARGET_POSITIONS - 4], len(prefix) - 1):
            scores += attention[:, :, position, span].sum(-1)
            count += 1
    flat = scores.flatten()
    order = [place for place in flat.argsort(descending=True).tolist() if flat[place] >= 0.95 * flat.max()]
    best = [divmod(place, config.decoder_attention_heads) for place in order[:num_heads]]
    shares = ", ".join(f"{head} {scores[head] / max(1, count):.2f}" for head in best)
    print(f"alignment heads (attention on the word): {shares}", flush=True)
    return sorted(best)
