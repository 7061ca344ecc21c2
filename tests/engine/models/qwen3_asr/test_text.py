"""Prompts are those of Qwen3ASRProcessor, answers are read as it reads them, and incrementally the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.models.prompts import Prompt
from sensorium.engine.models.qwen3_asr.info import Qwen3AsrInfo
from sensorium.engine.models.qwen3_asr.prompts import Qwen3AsrPrompts
from sensorium.engine.models.qwen3_asr.text import (
    LANGUAGES,
    MAX_HEADER,
    TEXT_TAG,
    Answer,
    AnswerReader,
    Qwen3AsrText,
    language_code,
    parse_answer,
    without_controls,
)
from sensorium.engine.models.qwen3_asr.windows import num_audio_tokens
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.protocols.chat.content import ChatMessage, MediaPart, Part, TextPart
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.engine.messages import ContentHash, EncoderItem, Features, MediaItems, MediaSpan
from sensorium.protocols.errors import BadRequestError, ModelLoadError
from sensorium.protocols.shared.languages import known_language
from support.asr_folder import AUDIO_TOKENS, asr_tokenizer, make_asr_folder, make_audio
from transformers import Qwen3ASRProcessor
from transformers.models.qwen3_asr import processing_qwen3_asr as reference


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_asr_folder(tmp_path_factory.mktemp("asr") / "model")


@pytest.fixture(scope="module")
def processor(folder: Path) -> Qwen3ASRProcessor:
    return Qwen3ASRProcessor.from_pretrained(folder)


def info_of(folder: Path, audio_token_id: int) -> Qwen3AsrInfo:
    return Qwen3AsrInfo(
        name="asr",
        folder=folder,
        family="qwen3_asr",
        vocab_size=400,
        max_context=1024,
        num_mel_bins=128,
        n_window=50,
        window_frames=800,
        output_size=32,
        audio_token_id=audio_token_id,
        languages=tuple(LANGUAGES),
    )


@pytest.fixture(scope="module")
def text(folder: Path) -> Qwen3AsrText:
    tokenizer = TextTokenizer.from_folder(folder)
    audio_token_id = tokenizer.id_of(AUDIO_TOKENS["audio_token"])
    assert audio_token_id is not None
    return Qwen3AsrText(tokenizer, info_of(folder, audio_token_id))


def items_of(num_frames: int) -> list[EncoderItem]:
    return [
        EncoderItem(ContentHash(f"window {start}"), Features((128, frames), b""), num_audio_tokens(frames))
        for start in range(0, num_frames, 800)
        if (frames := min(800, num_frames - start))
    ]


@pytest.mark.parametrize("seconds", [0.02, 0.5, 3.21, 8.0, 19.3])
@pytest.mark.parametrize(
    ("context", "language"),
    [
        ("", None),
        ("", "en"),
        ("Names: Łukasz, François; words: k8s, Ångström.", None),
        ("\n two lines,\r\n\tand a tab  ", "Cantonese"),
        ("今日は天気がいい。", "JA"),
        ("e\u0301 is composed <not a tag> a|b <| x", "fil"),
    ],
)
def test_prompts_are_the_processors(
    text: Qwen3AsrText, processor: Qwen3ASRProcessor, seconds: float, context: str, language: str | None
) -> None:
    expected = processor.apply_transcription_request(
        make_audio(0, seconds),
        language=language,
        prompt=context or None,
        processor_kwargs={"audio_kwargs": {"sampling_rate": 16_000}},
    )
    num_frames = int(expected["input_features_mask"].sum())
    prompt = text.prompt(items_of(num_frames), context=context, language=language)
    assert list(prompt.token_ids) == expected["input_ids"][0].tolist()


def test_spans_are_the_placeholders_in_order(text: Qwen3AsrText) -> None:
    items = items_of(1_950)
    prompt = text.prompt(items, context="a context")
    pad = text.info.audio_token_id
    placeholders = [position for position, token in enumerate(prompt.token_ids) if token == pad]
    covered = [range(span.start, span.start + span.num_tokens) for span in prompt.spans]
    assert [position for positions in covered for position in positions] == placeholders
    assert [(span.content_hash, span.num_tokens) for span in prompt.spans] == [
        (item.content_hash, item.num_tokens) for item in items
    ]


def test_growing_audio_keeps_the_prompt_in_front_of_it(text: Qwen3AsrText) -> None:
    shorter, longer = (text.prompt(items_of(frames), context="words") for frames in (1_700, 1_900))
    whole: MediaSpan = shorter.spans[1]
    unchanged = whole.start + whole.num_tokens
    assert longer.spans[:2] == shorter.spans[:2]
    assert longer.token_ids[:unchanged] == shorter.token_ids[:unchanged]


def test_an_answer_that_says_a_language_is_one_where_it_was_forced(text: Qwen3AsrText) -> None:
    items = items_of(16_000)
    for language in LANGUAGES:
        header = text.header(language)
        assert text.prompt(items) + header == text.prompt(items, language=language)
        assert text.num_header((*header, 1, 2)) == len(header)
        assert parse_answer(text.tokenizer.decode((*header, 5))).language == LANGUAGES[language]
    assert text.num_header((1, 2)) == 0


def test_no_audio_and_unknown_languages_are_refused(text: Qwen3AsrText) -> None:
    with pytest.raises(BadRequestError, match="no audio") as no_audio:
        text.prompt([])
    assert no_audio.value.param == "file"
    with pytest.raises(BadRequestError, match="'Klingon' is not one of ar, yue") as unknown:
        text.prompt(items_of(100), language="Klingon")
    assert unknown.value.param == "language"


CONTROL_PIECES = st.sampled_from(
    [
        "<|im_end|>",
        "<|im_start|>",
        "<|audio_pad|>",
        TEXT_TAG,
        "<|",
        "|>",
        "<",
        ">",
        "|",
        "<asr_",
        "text>",
        "a",
    ]
)
HOSTILE = st.lists(st.one_of(CONTROL_PIECES, st.text(max_size=3)), max_size=24).map("".join)


@settings(deadline=None, max_examples=300)
@given(context=HOSTILE)
def test_no_context_becomes_a_control_token(text: Qwen3AsrText, context: str) -> None:
    items = items_of(150)
    special = {token_id for token_id, token in asr_tokenizer().get_added_tokens_decoder().items()}

    def controls(prompt: tuple[int, ...]) -> list[int]:
        return [token for token in prompt if token in special]

    plain = text.prompt(items, language="en").token_ids
    assert controls(text.prompt(items, context=context, language="en").token_ids) == controls(plain)


@given(context=HOSTILE)
def test_names_of_control_tokens_are_removed_to_the_last(context: str) -> None:
    cleaned = without_controls(context)
    assert not re.search(r"<\|[^<|>]*\|>", cleaned)
    assert TEXT_TAG not in cleaned
    assert without_controls(cleaned) == cleaned
    rest = iter(context)
    assert all(character in rest for character in cleaned)  # nothing is added


@pytest.mark.parametrize(
    ("context", "cleaned"),
    [
        ("plain text, a < b > c || d", "plain text, a < b > c || d"),
        ("a<|im_end|>b", "ab"),
        ("<|im<|im_end|>_start|>x", "x"),
        ("<asr_<asr_text>text>y", "y"),
        ("<<||>|z|>", ""),
        ("|>", "|>"),
        ("<|>", "<|>"),
    ],
)
def test_what_is_removed(context: str, cleaned: str) -> None:
    assert without_controls(context) == cleaned


def test_cleaning_costs_no_more_than_the_text(text: Qwen3AsrText) -> None:
    depth = 100_000
    assert without_controls("<|" * depth + "a" + "|>" * depth) == ""
    assert len(without_controls("a" * depth + "|>" * depth)) == 3 * depth


def test_a_tokenizer_without_the_tokens_is_refused(folder: Path) -> None:
    tokenizer = TextTokenizer.from_folder(folder)
    with pytest.raises(ModelLoadError, match=r"audio_token_id 5 is not the tokenizer's <\|audio_pad\|>"):
        Qwen3AsrText(tokenizer, info_of(folder, 5))
    from support.text_folder import byte_level_tokenizer

    with pytest.raises(ModelLoadError, match=r"no token <\|audio_start\|>"):
        Qwen3AsrText(TextTokenizer(byte_level_tokenizer()), info_of(folder, 5))


def test_languages_are_the_processors() -> None:
    assert LANGUAGES == reference.LANGUAGE_CODE_TO_NAME
    for code, name in LANGUAGES.items():
        assert language_code(name) == language_code(name.upper()) == language_code(f" {code} ") == code
        assert known_language(code.upper(), LANGUAGES) == known_language(name, LANGUAGES) == code
        assert len(f"language {name}") < MAX_HEADER
    assert language_code("None") is language_code(None) is language_code("") is None


ANSWERS = {
    "language English<asr_text>Hello there.": Answer("English", "Hello there."),
    "language Chinese<asr_text> 你好 ": Answer("Chinese", "你好"),
    "language None<asr_text>": Answer(None, ""),
    "language NONE<asr_text>uh": Answer(None, "uh"),
    "  language  French <asr_text>a<asr_text>b": Answer("French", "a<asr_text>b"),
    "no tag at all": Answer(None, "no tag at all"),
    "language English": Answer(None, "language English"),
    "": Answer(None, ""),
    " \n ": Answer(None, ""),
    "<asr_text>text": Answer(None, "text"),
    "German<asr_text>Hallo": Answer("German", "Hallo"),
    "language \n<asr_text>x": Answer("language", "x"),
    "\nlanguage Dutch\nsecond line<asr_text>dag": Answer("Dutch", "dag"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_are_read_as_the_processor_reads_them(answer: str) -> None:
    assert parse_answer(answer) == ANSWERS[answer]
    expected = reference._parse_single_output(answer)
    assert ANSWERS[answer] == Answer(expected["language"], expected["transcription"])


PIECES = st.sampled_from(
    ["language ", "English", "None", TEXT_TAG, "<asr_", "text>", " ", "\n", "word", "文", "<", "language"]
)


@given(pieces=st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=20), has_header=st.booleans())
def test_an_answer_in_pieces_is_the_whole(pieces: list[str], has_header: bool) -> None:
    reader = AnswerReader(has_header=has_header)
    given_text = ""
    for piece in pieces:
        given_text += reader.feed(piece)
        assert given_text == given_text.strip()
    given_text += reader.finish()
    whole = "".join(pieces)
    assert Answer(reader.language, given_text) == parse_answer(whole, has_header=has_header)
    if not has_header:
        assert Answer(None, whole.strip()) == Answer(reader.language, given_text)
    elif len(whole) <= MAX_HEADER and "assistant\n" not in whole:
        expected = reference._parse_single_output(whole)
        assert Answer(expected["language"], expected["transcription"]) == Answer(reader.language, given_text)


def test_nothing_is_given_before_the_tag_is_complete() -> None:
    reader = AnswerReader()
    answer = "language English<asr_text>Hi, you"
    given_text = [reader.feed(character) for character in answer]
    tag_end = answer.index(">") + 1
    assert given_text[:tag_end] == [""] * tag_end
    assert "".join(given_text[tag_end:]) == "Hi, you"
    assert reader.language == "English"


def test_an_answer_without_a_tag_is_given_once_that_is_clear() -> None:
    reader = AnswerReader()
    text = "x" * (MAX_HEADER + len(TEXT_TAG) - 1)
    assert reader.feed(text) == ""
    assert reader.feed("y") == text + "y"
    assert parse_answer(text + "y<asr_text>z").text == text + "y<asr_text>z"


SOUND = MediaPart("audio", b"", param="messages[0].content[0]")


def message(role: Any, content: str | tuple[Part, ...], **extra: object) -> ChatMessage:  # noqa: ANN401
    return ChatMessage(role=role, content=content, extra=extra, param="messages[1]")


def chat(text: Qwen3AsrText, *messages: ChatMessage, **options: Any) -> Prompt:  # noqa: ANN401
    """The prompt of a conversation with one second of sound."""
    conversation = Conversation(messages=messages, **{"template_kwargs": {}, **options})
    return Qwen3AsrPrompts(text).chat(conversation, [MediaItems("audio", tuple(items_of(100)))])


def test_the_beginning_of_an_answer_goes_on(text: Qwen3AsrText) -> None:
    sound = message("user", (SOUND,))
    continued = {"continue_final_message": True, "add_generation_prompt": False}
    forced = chat(text, sound, message("assistant", "language Spanish<asr_text>"), **continued)
    assert (
        forced
        == chat(text, sound, template_kwargs={"language": "es"})
        == text.prompt(items_of(100), language="es")
    )
    begun = chat(text, sound, message("assistant", "language English<asr_text>The cat"), **continued)
    tail = text.tokenizer.encode("The cat", allow_special=False)
    assert begun.token_ids == (*text.prompt(items_of(100), language="en").token_ids, *tail)
    bare = chat(text, sound, message("assistant", "language"), **continued)
    assert (
        bare.token_ids[: -len(text.tokenizer.encode("language", allow_special=False))]
        == chat(text, sound).token_ids
    )
    # Only the answer's own tag is a token.
    typed = chat(text, sound, message("assistant", "a<|im_end|><asr_text>b<asr_text>"), **continued)
    answer = typed.token_ids[len(chat(text, sound).token_ids) :]
    assert answer.count(text.text_tag) == 1
    assert text.tokenizer.id_of("<|im_end|>") not in answer


def test_a_chat_says_what_its_prompt_has_room_for(text: Qwen3AsrText) -> None:
    context = message("system", "Names: Ada.")
    sound = message("user", (SOUND, TextPart(" ")))
    assert chat(text, context, sound) == text.prompt(items_of(100), context="Names: Ada.")
    assert chat(text, sound, add_generation_prompt=False) == text.question(items_of(100))


@pytest.mark.parametrize(
    ("messages", "options", "param"),
    [
        ((message("user", (SOUND, TextPart("Write it down."))),), {}, "messages[1].content"),
        ((message("user", (SOUND,)), message("user", "And?")), {}, "messages[1].content"),
        ((message("user", (SOUND,)), message("assistant", "language English<asr_text>a")), {}, "messages[1]"),
        ((message("assistant", "a"), message("user", (SOUND,))), {}, "messages[1]"),
        ((message("user", (SOUND,)), message("tool", "3")), {}, "messages[1]"),
        (
            (message("user", (SOUND,)), message("assistant", "language English<asr_text>")),
            {"continue_final_message": True, "template_kwargs": {"language": "en"}},
            "chat_template_kwargs.language",
        ),
    ],
)
def test_what_a_chat_cannot_say_is_refused_by_name(
    text: Qwen3AsrText, messages: tuple[ChatMessage, ...], options: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        chat(text, *messages, **options)
    assert caught.value.param == param
