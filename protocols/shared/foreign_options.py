"""What others call otherwise: the hint behind an option that nobody here defines.

Those of a transcription are names of faster-whisper, of openai-whisper with its command line, of
whisper.cpp's server, and of Deepgram: forms (`protocols/transcription/form.py`), the SDK and the local engine
refuse an option with it.
Those of text are llama.cpp's, SGLang's and transformers': `protocols/shared/json_body.py` refuses a field
with it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

_KEYWORDS: Final = "name words to expect by `keywords`"
_SPEAKERS: Final = "speakers are not distinguished; `multichannel` transcribes each channel separately"
_NO_SPEECH: Final = "what is no speech is left out by `vad_filter`"
_UNTIMED: Final = "there are none where `timestamp_granularities` does not ask for any"
_UNLIKELY: Final = "a list of `temperature` is tried where an answer is unlikely"
_REPEATED: Final = "a list of `temperature` is tried where an answer repeats itself"
_WRITTEN: Final = "text is punctuated as the model writes it, and `numerals` digits writes numbers so"
_TRANSLATED: Final = "English of any language is made at `/v1/audio/translations`"
_LOADED: Final = "numbers have the type that the model was loaded with"
_TIMED: Final = "ask for `timestamp_granularities` word"
_NO_ROOM: Final = "an answer has room for as much as can be said in its window"
_OWN_RATE: Final = "files state their own rate; raw samples go to `/v1/realtime`"
_CLIPS: Final = "parts of a file are named by `clip_timestamps`"
_DETECTED: Final = "the language is detected where `language` is not given; `languages` are those to expect"
OF_SPEECH: Final = {
    "word_timestamps": _TIMED,
    "token_timestamps": _TIMED,
    "enable_timestamps": _TIMED,
    "return_timestamps": _TIMED,
    "timestamps": _TIMED,
    "timestamps_granularity": _TIMED,
    "without_timestamps": _UNTIMED,
    "initial_prompt": "it is called `prompt` here",
    "prefix": "text to go on from is given as `prompt`",
    "hotwords": _KEYWORDS,
    "keyterm": _KEYWORDS,
    "keyterms": _KEYWORDS,
    "context_bias": _KEYWORDS,
    "word_boost": _KEYWORDS,
    "diarize": _SPEAKERS,
    "diarization": _SPEAKERS,
    "tinydiarize": _SPEAKERS,
    "speaker_labels": _SPEAKERS,
    "known_speaker_names": _SPEAKERS,
    "known_speaker_references": _SPEAKERS,
    "num_speakers": _SPEAKERS,
    "min_speakers": _SPEAKERS,
    "max_speakers": _SPEAKERS,
    "suppress_numerals": "ask for `numerals` words",
    "smart_format": _WRITTEN,
    "punctuate": _WRITTEN,
    "no_speech_threshold": _NO_SPEECH,
    "log_prob_threshold": _UNLIKELY,
    "logprob_threshold": _UNLIKELY,
    "compression_ratio_threshold": _REPEATED,
    "temperature_increment_on_fallback": _UNLIKELY,
    "temperature_inc": _UNLIKELY,
    "logprob_thold": _UNLIKELY,
    "entropy_thold": _REPEATED,
    "no_speech_thold": _NO_SPEECH,
    "no_timestamps": _UNTIMED,
    "multilingual": _DETECTED,
    "detect_language": _DETECTED,
    "output_format": "it is called `response_format` here",
    "task": _TRANSLATED,
    "to_language": _TRANSLATED,
    "target_language": _TRANSLATED,
    "translate": _TRANSLATED,
    "language_code": "it is called `language` here",
    "model_id": "it is called `model` here",
    "file_url": "it is called `url` here",
    "audio_url": "it is called `url` here",
    "vad": _NO_SPEECH,
    "sample_rate": _OWN_RATE,
    "sampling_rate": _OWN_RATE,
    "offset_t": _CLIPS,
    "duration": _CLIPS,
    "max_len": "`max_line_width` and `max_words_per_line` cut subtitles",
    "logprobs": "ask for `include` logprobs",
    "batch_size": "the windows of a file are answered side by side, as many as the server runs at once",
    "chunk_length": "windows are as long as the model's",
    "max_new_tokens": _NO_ROOM,
    "max_tokens": _NO_ROOM,
    "max_completion_tokens": _NO_ROOM,
    "fp16": _LOADED,
    "compute_type": _LOADED,
}

_MAX_TOKENS: Final = "it is called `max_tokens` here"
_MIN_TOKENS: Final = "it is called `min_tokens` here"
_STRUCTURED: Final = "say it in `structured_outputs`"
_FILTERS: Final = "`top_p`, `top_k` and `min_p` say what may be drawn"
_REPEATING: Final = "`repetition_penalty` and `no_repeat_ngram_size` keep an answer from repeating itself"
_ADAPTERS: Final = "adapters are not served; merge them into the weights"
_BEAMS: Final = "beams are for transcriptions"
OF_TEXT: Final = {
    "repeat_penalty": "it is called `repetition_penalty` here",
    "n_predict": _MAX_TOKENS,
    "max_new_tokens": _MAX_TOKENS,
    "max_length": _MAX_TOKENS,
    "min_new_tokens": _MIN_TOKENS,
    "min_length": _MIN_TOKENS,
    "n_probs": "it is called `logprobs` here",
    "logprob_token_ids": "`logprobs` of `allowed_token_ids` compares the tokens named there",
    "num_return_sequences": "it is called `n` here",
    "stop_strings": "it is called `stop` here",
    "no_stop_trim": "it is called `include_stop_str_in_output` here",
    "eos_token_id": "it is called `stop_token_ids` here",
    "bad_words_ids": "`bad_words` forbids words, and `logit_bias` tokens",
    "suppress_tokens": "`logit_bias` forbids tokens",
    "do_sample": "a `temperature` of 0 is greedy",
    "grammar": _STRUCTURED,
    "json_schema": _STRUCTURED,
    "regex": _STRUCTURED,
    "ebnf": _STRUCTURED,
    "typical_p": _FILTERS,
    "top_n_sigma": _FILTERS,
    "tfs_z": _FILTERS,
    "xtc_probability": _FILTERS,
    "mirostat": _FILTERS,
    "repeat_last_n": _REPEATING,
    "dry_multiplier": _REPEATING,
    "repetition_detection": _REPEATING,
    "cache_prompt": "prompts are always cached",
    "separate_reasoning": "thoughts are told apart; `include_reasoning` false leaves them out",
    "lora_path": _ADAPTERS,
    "lora_request": _ADAPTERS,
    "num_beams": _BEAMS,
    "beam_size": _BEAMS,
}
"""Of the fields that are sent together the first."""


def meant(
    name: str,
    known: Collection[str],
    elsewhere: Mapping[str, str] = OF_SPEECH,
    takes: Callable[[str], bool] = lambda _: True,
) -> str:
    """The end of a sentence about a name that is none of `known`: what may be meant, or nothing. `elsewhere`
    has names of others with what there is instead, which is said where all of it is `known`. A similar name
    is suggested only if its option `takes` the value that was given."""
    instead = elsewhere.get(name, "")
    if instead and all(option in known for option in re.findall(r"`(\w+)`", instead)):
        return f"; {instead}"
    if instead:
        return ""
    near = [each for each in difflib.get_close_matches(name[:100], known, n=3) if takes(each)]
    return f"; did you mean `{near[0]}`?" if near else ""
