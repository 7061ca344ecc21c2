"""What models are asked for a transcript is, token for token, what their processors ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from sensorium.engine.models.multimodal.side import TranscriptionPrompts
from support.media_checkpoints import Checkpoint
from support.media_families import BY_NAME
from support.media_families.transcribing import TRANSCRIBING
from support.media_family import Family, Sound, make_media_folder
from transformers import (
    AudioFlamingo3Processor,
    GlmAsrProcessor,
    PreTrainedTokenizerFast,
    WhisperFeatureExtractor,
)

PROCESSORS = {"audioflamingo3": AudioFlamingo3Processor, "glmasr": GlmAsrProcessor}
VOXTRAL = next(family for family in TRANSCRIBING if family.model_type == "voxtral")
SOUND = Sound(1.31)


def opened(folder: Path, family: Family) -> tuple[Checkpoint, TranscriptionPrompts]:
    checkpoint = Checkpoint(make_media_folder(folder, family), family)
    speech = checkpoint.source.side.speech
    assert speech is not None
    assert isinstance(speech.text, TranscriptionPrompts)
    return checkpoint, speech.text


@pytest.mark.parametrize("name", PROCESSORS)
def test_prompts_are_those_of_the_processor(tmp_path: Path, name: str) -> None:
    checkpoint, prompts = opened(tmp_path, BY_NAME[name])
    processor = PROCESSORS[name](
        WhisperFeatureExtractor(feature_size=16, chunk_length=2),
        PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), pad_token="<|endoftext|>"),
        chat_template=(tmp_path / "chat_template.jinja").read_text(),
    )
    found = processor.apply_transcription_request(SOUND.samples)
    prompt = prompts.prompt(checkpoint.opened(SOUND).items, None)
    assert list(prompt.token_ids) == found["input_ids"][0].tolist()


def test_voxtral_is_asked_as_mistral_common_asks(tmp_path: Path) -> None:
    """As `InstructTokenizerV7.encode_transcription` of mistral-common 1.13: the start of a text, a user's
    message of the audio alone, the language without a space, and the mark."""
    checkpoint, prompts = opened(tmp_path, VOXTRAL)
    items, text = checkpoint.opened(SOUND).items, prompts.text
    ids = {
        name: text.id_of(name) for name in ("[INST]", "[BEGIN_AUDIO]", "[AUDIO]", "[/INST]", "[TRANSCRIBE]")
    }
    audio = [ids["[AUDIO]"]] * sum(span.num_tokens for span in prompts.prompt(items, None).spans)
    question = [ids["[INST]"], ids["[BEGIN_AUDIO]"], *audio, ids["[/INST]"]]
    assert list(prompts.prompt(items, None).token_ids) == [*question, ids["[TRANSCRIBE]"]]
    named = [*question, *text.encode("lang:fr", allow_special=False), ids["[TRANSCRIBE]"]]
    assert list(prompts.prompt(items, "fr").token_ids) == named
