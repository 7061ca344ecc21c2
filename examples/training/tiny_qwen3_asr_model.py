"""The network of tiny-qwen3-asr: its shape, its tokenizer, its training losses and its checkpoint folder.

The network is `transformers`' Qwen3-ASR with the published chunk and window sizes (1 s chunks of 13 rows,
attention over 8 s), so the exported folder loads wherever the big ones do; only the audio tower is driven by
hand here, to batch windows. `train_tiny_qwen3_asr.py` holds the loop and makes the batches.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from checkpoint_files import (
    END,
    MESSAGE_END,
    MESSAGE_START,
    byte_level_tokenizer,
    replaced_files,
    write_tokenizer,
    write_weights,
)
from grouped_attention import GROUPED
from recall import RecallBatch
from speech_grammar import Language
from tiny_whisper_data import NUM_MELS
from tiny_whisper_tokens import LETTERS
from tokenizers import AddedToken, Tokenizer
from torch import nn
from torch.nn import functional
from transformers import (
    GenerationConfig,
    Qwen3ASRConfig,
    Qwen3ASRFeatureExtractor,
    Qwen3ASRForConditionalGeneration,
)

NUM_TEXT_TOKENS: Final = 1_000
WIDTH: Final = 192
DECODER_LAYERS: Final = 4
CHUNK_FRAMES: Final = 100
CHUNK_ROWS: Final = 13
WINDOW_CHUNKS: Final = 8
BLANK_AT_FIRST: Final = 3.0
LETTERS_PER_ROW: Final = 3
"""CTC wants more positions than there are letters: every row of 77 ms stands for this many."""

AUDIO_START, AUDIO_END, AUDIO_PAD = "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>"
TEXT_TAG: Final = "<asr_text>"
LANGUAGE_NAMES: dict[Language, str] = {"en": "English", "es": "Spanish", "de": "German"}

CHAT_TEMPLATE: Final = (
    "<|im_start|>system\n"
    "{% for message in messages if message.role == 'system' %}"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}<|im_end|>\n"
    "<|im_start|>user\n"
    "{% for message in messages if message.role == 'user' %}{% for part in message.content %}"
    "<|audio_start|><|audio_pad|><|audio_end|>{% endfor %}{% endfor %}<|im_end|>\n"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What may be chosen of the network: layers of the tower, width of the decoder's MLP."""

    tower_layers: int = 6
    decoder_mlp: int = 768


def build_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A byte-level BPE that splits words as Qwen's does, with the control tokens of Qwen3-ASR."""
    controls = (END, MESSAGE_START, MESSAGE_END, AUDIO_START, AUDIO_END, AUDIO_PAD)
    bpe = byte_level_tokenizer(texts, NUM_TEXT_TOKENS, controls)
    bpe.add_tokens([AddedToken(TEXT_TAG, normalized=False, special=False)])
    return bpe


def model_config(tokenizer: Tokenizer, shape: Shape) -> Qwen3ASRConfig:
    """The network's shape; the vocabulary is exactly the tokenizer's."""
    end, message_end = tokenizer.token_to_id(END), tokenizer.token_to_id(MESSAGE_END)
    return Qwen3ASRConfig(
        audio_config={
            "num_mel_bins": NUM_MELS,
            "d_model": WIDTH,
            "encoder_layers": shape.tower_layers,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 4 * WIDTH,
            "output_dim": WIDTH,
            "downsample_hidden_size": 48,
        },
        text_config={
            "vocab_size": tokenizer.get_vocab_size(with_added_tokens=True),
            "hidden_size": WIDTH,
            "intermediate_size": shape.decoder_mlp,
            "num_hidden_layers": DECODER_LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 48,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": message_end,
            "pad_token_id": end,
        },
        tie_word_embeddings=True,
        audio_token_id=tokenizer.token_to_id(AUDIO_PAD),
        timestamp_token_id=end,
        eos_token_id=[end, message_end],
        pad_token_id=end,
        support_languages=list(LANGUAGE_NAMES.values()),
    )


@dataclass(frozen=True, slots=True)
class AsrBatch:
    """One step's rows. `chunks` [chunks, mels, 100] of all windows in order; `window_chunks` how many
    of them each window has; `window_rows` its rows that are real; `inputs` and `labels` [rows, length];
    `audio_mask` marks the positions of audio rows in `inputs`. `letters`, `num_letters` and
    `utterance_windows` (windows of each utterance) serve the CTC loss; `recall` has no audio."""

    chunks: torch.Tensor
    window_chunks: list[int]
    window_rows: list[int]
    utterance_windows: list[int]
    inputs: torch.Tensor
    labels: torch.Tensor
    audio_mask: torch.Tensor
    letters: torch.Tensor
    num_letters: torch.Tensor
    recall: RecallBatch


class TrainedAsr(nn.Module):
    """The network with a CTC head on its tower, which finds the monotonic alignment early."""

    def __init__(self, config: Qwen3ASRConfig) -> None:
        super().__init__()
        for part in (config, config.audio_config, config.text_config):
            part._attn_implementation = GROUPED
        self.asr = Qwen3ASRForConditionalGeneration(config)
        self.ctc = nn.Linear(config.audio_config.d_model, LETTERS_PER_ROW * (len(LETTERS) + 1))
        with torch.no_grad():
            # Mostly blank at first: the loss would otherwise be so large that it shakes a tower that hears.
            self.ctc.weight.mul_(0.1)
            self.ctc.bias.zero_().view(LETTERS_PER_ROW, -1)[:, -1] = BLANK_AT_FIRST

    def forward(self, batch: AsrBatch, *, ctc_alone: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross entropy of the answers and CTC loss of the tower, both means; the second teaches the CTC
        head only if it is to learn alone."""
        model = cast(Any, self.asr.model)
        with torch.autocast("cpu", torch.bfloat16):
            windows = self._encoded(batch)
            rows = torch.cat(
                [window[:count] for window, count in zip(windows, batch.window_rows, strict=True)]
            )
            embedded = model.get_input_embeddings()(batch.inputs).to(rows.dtype)
            embedded = embedded.masked_scatter(batch.audio_mask[..., None], model.multi_modal_projector(rows))
            hidden = model.language_model(inputs_embeds=embedded, use_cache=False).last_hidden_state
            # Only the predicted positions go through the vocabulary.
            predicted = batch.labels != -100
            logits = self.asr.lm_head(hidden[predicted])
            ctc_logits = self.ctc(rows.detach() if ctc_alone else rows)
        loss = functional.cross_entropy(logits.float(), batch.labels[predicted])
        return loss, self._ctc_loss(ctc_logits.float(), batch)

    def recalled(self, batch: RecallBatch) -> torch.Tensor:
        """Cross entropy of how the prompt's words go on, a mean."""
        model = cast(Any, self.asr.model)
        length = batch.inputs.shape[1]
        # Given, because `transformers` would take what is behind a gap of the positions for another text.
        mask = torch.full((length, length), -1e4).triu(1)[None, None]
        with torch.autocast("cpu", torch.bfloat16):
            hidden = model.language_model(
                inputs_embeds=model.get_input_embeddings()(batch.inputs),
                position_ids=batch.positions,
                attention_mask=mask,
                use_cache=False,
            ).last_hidden_state
            predicted = batch.labels != -100
            logits = self.asr.lm_head(hidden[predicted])
        return functional.cross_entropy(logits.float(), batch.labels[predicted])

    def _encoded(self, batch: AsrBatch) -> torch.Tensor:
        """The tower's rows [windows, longest, width] before the projector; those behind the real ones are
        meaningless."""
        tower = cast(Any, self.asr.model.audio_tower)
        x = batch.chunks[:, None]
        for convolution in (tower.conv2d1, tower.conv2d2, tower.conv2d3):
            x = functional.gelu(convolution(x))
        x = tower.conv_out(x.permute(0, 3, 1, 2).flatten(2))
        x = x + tower.positional_embedding.positional_embedding[:CHUNK_ROWS].to(x.dtype)
        longest = max(batch.window_chunks)
        padded = x.new_zeros((len(batch.window_chunks), longest * CHUNK_ROWS, x.shape[-1]))
        first = 0
        for index, count in enumerate(batch.window_chunks):
            padded[index, : count * CHUNK_ROWS] = x[first : first + count].flatten(0, 1)
            first += count
        real = torch.arange(padded.shape[1]) < torch.tensor(batch.window_rows)[:, None]
        mask = torch.zeros(real.shape).masked_fill(~real, -1e4)[:, None, None]
        x = padded
        for layer in tower.layers:
            x = _tower_layer(layer, x, mask)
        return cast(torch.Tensor, tower.ln_post(x))

    def _ctc_loss(self, logits: torch.Tensor, batch: AsrBatch) -> torch.Tensor:
        """`logits` [rows of all utterances, letters per row · classes]."""
        rows = iter(batch.window_rows)
        counts = [sum(next(rows) for _ in range(windows)) for windows in batch.utterance_windows]
        parts = [part.view(-1, len(LETTERS) + 1) for part in torch.split(logits, counts)]
        padded = nn.utils.rnn.pad_sequence(parts)
        return functional.ctc_loss(
            padded.log_softmax(-1),
            batch.letters,
            torch.tensor([len(part) for part in parts]),
            batch.num_letters,
            blank=len(LETTERS),
            zero_infinity=True,
        )


def _tower_layer(layer: Any, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    attention = layer.self_attn
    windows, rows, width = x.shape
    normed = layer.self_attn_layer_norm(x)
    query, key, value = (
        projection(normed).view(windows, rows, attention.num_heads, -1).transpose(1, 2)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    scores = (query * attention.scaling) @ key.transpose(2, 3) + mask.to(query.dtype)
    mixed = (scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2).reshape(windows, rows, width)
    x = x + attention.out_proj(mixed)
    normed = layer.final_layer_norm(x)
    return cast(torch.Tensor, x + layer.fc2(functional.gelu(layer.fc1(normed))))


def feature_extractor() -> Qwen3ASRFeatureExtractor:
    """Qwen3-ASR's features with this model's mel bins."""
    return Qwen3ASRFeatureExtractor(feature_size=NUM_MELS)


def export(weights: dict[str, torch.Tensor], tokenizer: Tokenizer, shape: Shape, folder: Path) -> None:
    """Replace the checkpoint folder's files one by one, each at once. Others, such as the model card,
    stay."""
    config = model_config(tokenizer, shape)
    config.architectures = ["Qwen3ASRForConditionalGeneration"]
    eos = [tokenizer.token_to_id(END), tokenizer.token_to_id(MESSAGE_END)]
    audio = {"audio_token": AUDIO_PAD, "audio_bos_token": AUDIO_START, "audio_eos_token": AUDIO_END}
    with replaced_files(folder) as fresh:
        config.save_pretrained(fresh)
        GenerationConfig(eos_token_id=eos, pad_token_id=eos[0]).save_pretrained(fresh)
        feature_extractor().save_pretrained(fresh)
        write_tokenizer(fresh, tokenizer, CHAT_TEMPLATE, {"extra_special_tokens": audio})
        write_weights(fresh, weights, "lm_head.weight")
