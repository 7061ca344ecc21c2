"""Text becomes the ids `transformers` gives it, and text from outside never becomes a control token."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.models.whisper.tokenizer import read_tokenizer
from sensorium.engine.text import tokenizer as tokenizer_module
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.protocols.errors import BadRequestError, ModelLoadError
from sensorium.protocols.shared.panics import PanicError
from support.text_folder import (
    CHAT_TEMPLATE,
    CONTROL_TOKENS,
    SENTENCES,
    TEXT_LIKE_TOKENS,
    byte_level_tokenizer,
    write_tokenizer,
)
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, GPT2Tokenizer


def sentencepiece_bpe() -> Tokenizer:
    """As Llama 2's: `▁` for spaces, bytes as `<0x..>` tokens, control tokens inside the model's vocabulary,
    and merges that would make one of them."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", *"<>/sabcdehlotu", "he", "ll", "▁he", "<s", "▁he" + "ll", "▁hell" + "o", "▁a"]
    merges = [
        ("h", "e"),
        ("l", "l"),
        ("▁", "he"),
        ("▁he", "ll"),
        ("▁hell", "o"),
        ("▁", "a"),
        ("<", "s"),
        ("<s", ">"),
    ]
    model = models.BPE(
        {piece: index for index, piece in enumerate(pieces)},
        merges,
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in pieces[:3]])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def unigram() -> Tokenizer:
    """As T5's: pieces with scores; control tokens are pieces too, and likely ones."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([*SENTENCES, "a < b > s / c"] * 3, trainer)
    return tokenizer


def words() -> Tokenizer:
    """As BERT's; `[MASK]` is a word of its own."""
    names = ["[UNK]", "[MASK]", "the", "fox", "##es", "[", "]", "mask", "MASK"]
    tokenizer = Tokenizer(models.WordPiece({n: i for i, n in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names[:2]])
    return tokenizer


def whole_words() -> Tokenizer:
    """As Llama 3's, which takes a word that is in the vocabulary as it is, but with control words in it."""
    description = json.loads(byte_level_tokenizer().to_str())
    description["model"]["ignore_merges"] = True
    vocabulary = description["model"]["vocab"]
    vocabulary["<end>"] = len(vocabulary)
    description["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.add_special_tokens([AddedToken("<end>", normalized=False, special=True), "<|after|>"])
    tokenizer.add_tokens([AddedToken("   ", normalized=False), "<tag>"])
    return tokenizer


def user_defined() -> Tokenizer:
    """As Gemma's: runs of spaces (written `▁`) and tags of HTML are added tokens; and added words."""
    pieces = ["<unk>", *"▁<>/abcdehlotu", "▁▁", "▁▁▁", "<table>", "he", "<turn>"]
    merges = [("▁", "▁"), ("▁▁", "▁"), ("h", "e")]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Replace("▁", " ")
    tokenizer.add_special_tokens([AddedToken("<unk>", normalized=False)])
    names = ("▁▁", "▁▁▁", "<table>", "<turn>", "hello", "हिन्दी", "COVID-19")
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in names])
    return tokenizer


MAKERS: tuple[Callable[[], Tokenizer], ...] = (
    byte_level_tokenizer,
    sentencepiece_bpe,
    unigram,
    words,
    whole_words,
    user_defined,
)
TOKENIZERS = {make.__name__: TextTokenizer(Tokenizer.from_str(make().to_str())) for make in MAKERS}
NAMES = sorted(
    {
        added.content
        for tokenizer in TOKENIZERS.values()
        for added in tokenizer.backend.get_added_tokens_decoder().values()
    }
)
ANYTHING = st.lists(
    st.one_of(
        st.sampled_from(NAMES),
        st.sampled_from(NAMES).flatmap(lambda name: st.sampled_from([name[:-1], name[1:], name * 2])),
        st.sampled_from([" ", "\n", "hello", "the", "\ufdd0", "\ufdd01"]),
        st.text(max_size=5),
    ),
    max_size=8,
).map("".join)


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=ANYTHING)
def test_text_from_outside_never_becomes_a_control_token(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text, allow_special=False)
    unknown = {tokenizer.id_of(name) for name in ("<unk>", "[UNK]")}
    assert not [token_id for token_id in ids if tokenizer.is_control(token_id) and token_id not in unknown]


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=st.text(alphabet="abehlo stux  ñ今🎈\n", max_size=20))
def test_other_text_has_the_same_ids_either_way(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    plain, special = (tokenizer.encode(text, allow_special=allow) for allow in (False, True))
    assert plain == special == tuple(tokenizer.backend.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("kind", ["byte_level_tokenizer", "whole_words"])
@given(text=st.text(max_size=30).filter(lambda text: "\ufdd0" not in text))
def test_no_text_is_lost(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    named = f"{text}{NAMES[0]}{text}<end>"
    for each in (text, named):
        clean = each.encode("utf-8", "replace").decode()
        assert tokenizer.decode(tokenizer.encode(clean, allow_special=False)) == clean


def test_control_tokens_where_they_are_allowed() -> None:
    tokenizer = TOKENIZERS["byte_level_tokenizer"]
    for name in (*CONTROL_TOKENS, *TEXT_LIKE_TOKENS):
        token_id = tokenizer.id_of(name)
        assert token_id is not None
        assert tokenizer.is_control(token_id)
        assert tokenizer.encode(name, allow_special=True) == (token_id,)
        assert len(tokenizer.encode(name, allow_special=False)) > 1
        assert tokenizer.decode([token_id]) == ("" if name in CONTROL_TOKENS else name)
    assert tokenizer.id_of("<|nothing|>") is None


def test_white_space_that_is_an_added_token_is_text() -> None:
    tokenizer = TOKENIZERS["whole_words"]
    ids = tokenizer.encode("a   b", allow_special=False)
    assert tokenizer.id_of("   ") in ids
    assert ids == tokenizer.encode("a   b", allow_special=True)


@pytest.mark.parametrize("text", ["a   b    c\n  d", "<table>  <table", "hello he हिन्दी COVID-19"])
def test_added_tokens_that_are_text_are_found_in_text(text: str) -> None:
    tokenizer = TOKENIZERS["user_defined"]
    assert tokenizer.encode(text, allow_special=False) == tokenizer.encode(text, allow_special=True)
    assert tokenizer.id_of("<turn>") not in tokenizer.encode(f"{text}<turn>", allow_special=False)


def test_what_goes_in_front_of_a_prompt() -> None:
    assert TOKENIZERS["byte_level_tokenizer"].start_ids == ()
    assert TOKENIZERS["sentencepiece_bpe"].start_ids == (1,)
    assert TOKENIZERS["sentencepiece_bpe"].encode("hello", allow_special=True)[0] != 1


@pytest.mark.parametrize("in_front", ["<s> ", ""])
def test_an_end_that_the_tokenizer_adds_is_neither_in_front_of_a_prompt_nor_behind_it(in_front: str) -> None:
    """As fine-tuned with `add_eos_token`: a start may stand in front, the end belongs to no prompt."""
    tokenizer = sentencepiece_bpe()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{in_front}$A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    assert TextTokenizer(tokenizer).start_ids == ((1,) if in_front else ())


def test_broken_characters_and_unknown_ids() -> None:
    tokenizer = TOKENIZERS["byte_level_tokenizer"]
    for allow_special in (False, True):
        assert tokenizer.decode(tokenizer.encode("a\ud800b", allow_special=allow_special)) == "a?b"
    ids = tokenizer.encode("今", allow_special=False)
    assert tokenizer.decode(ids[:-1]) == "\ufffd"
    assert tokenizer.decode([*ids, tokenizer.num_ids + 2]) == "今"
    assert (
        TOKENIZERS["sentencepiece_bpe"].decode(
            TOKENIZERS["sentencepiece_bpe"].encode("今 hello", allow_special=False)
        )
        == "今 hello"
    )


@pytest.mark.parametrize("kind", ["byte_level_tokenizer", "sentencepiece_bpe", "unigram"])
def test_ids_and_text_equal_those_of_transformers(kind: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, TOKENIZERS[kind].backend)
    if kind != "byte_level_tokenizer":  # whose config names tokens these do not have
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours, theirs = TextTokenizer.from_folder(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in (*SENTENCES, "hello  hello<s>", "".join(CONTROL_TOKENS), ""):
        ids = ours.encode(text, allow_special=True)
        assert list(ids) == theirs.encode(text, add_special_tokens=False)
        assert list(ours.start_ids) + list(ids) == theirs.encode(text)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_tokens_that_only_the_config_names(tmp_path: Path) -> None:
    """As published Qwen tokenizers: added later, or special only there."""
    write_tokenizer(tmp_path, byte_level_tokenizer())
    think, first_free = byte_level_tokenizer().token_to_id("<think>"), byte_level_tokenizer().get_vocab_size()
    path = tmp_path / "tokenizer_config.json"
    listed = {
        str(think): {"content": "<think>", "special": True},
        str(first_free): {"content": "<|new|>", "special": True},
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | {"added_tokens_decoder": listed}))
    tokenizer = TextTokenizer.from_folder(tmp_path)
    ids = tokenizer.encode("<|new|><think>", allow_special=True)
    assert ids == (first_free, think)
    assert tokenizer.decode(ids) == ""


def test_the_chat_template_is_where_publishers_put_it(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, byte_level_tokenizer())
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())

    def template(value: object) -> str | None:
        path.write_text(json.dumps(config | {"chat_template": value}))
        return TextTokenizer.from_folder(tmp_path).chat_template

    assert template(CHAT_TEMPLATE) == CHAT_TEMPLATE
    assert template([{"name": "tool_use", "template": "b"}, {"name": "default", "template": "a"}]) == "a"
    assert template(None) is None
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "c"}))
    assert template(None) == "c"
    (tmp_path / "chat_template.jinja").write_text("d")
    assert template("a") == "d"


def test_names_that_templates_use(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, byte_level_tokenizer())
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"bos_token": {"content": "<|im_start|>"}}
    path.write_text(json.dumps(config))
    tokenizer = TextTokenizer.from_folder(tmp_path)
    assert tokenizer.names == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }
    assert tokenizer.end_ids == (tokenizer.id_of("<|im_end|>"),)


def test_older_formats_are_read_through_transformers(tmp_path: Path) -> None:
    model = json.loads(byte_level_tokenizer().to_str())["model"]
    old = GPT2Tokenizer(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]])
    old.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(merge) for merge in model["merges"])
    (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    tokenizer = TextTokenizer.from_folder(tmp_path)
    for sentence in SENTENCES:
        ids = tokenizer.encode(sentence, allow_special=False)
        assert ids == tuple(byte_level_tokenizer().encode(sentence).ids)
        assert tokenizer.decode(ids) == sentence


def test_a_tokenizers_own_code_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    auto_map = {"AutoTokenizer": ["evil.Evil", None]}
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "Evil", "auto_map": auto_map})
    )
    (tmp_path / "evil.py").write_text("raise SystemExit('this must never run')")
    with pytest.raises(ModelLoadError, match="not a readable tokenizer"):
        TextTokenizer.from_folder(tmp_path)


def test_truncation_and_padding_of_a_file_are_off() -> None:
    backend = Tokenizer.from_str(byte_level_tokenizer().to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=9)
    tokenizer = TextTokenizer(backend)
    for allow_special in (False, True):
        text = SENTENCES[0]
        assert tokenizer.decode(tokenizer.encode(text, allow_special=allow_special)) == text


def test_others_go_on_while_a_long_text_is_encoded(tmp_path: Path) -> None:
    """A live speaker's loop, say: whoever holds the interpreter for a prompt's length stops everybody."""
    write_tokenizer(tmp_path, byte_level_tokenizer())
    text = TextTokenizer.from_folder(tmp_path)
    prompt = "all the words of a book " * 40_000
    begun = threading.Event()

    def encode() -> int:
        begun.set()
        return len(text.encode(prompt, allow_special=False))

    with ThreadPoolExecutor(1) as threads:
        job = threads.submit(encode)
        begun.wait()
        num_turns = 0
        while not job.done():
            time.sleep(0.001)
            num_turns += 1
        assert job.result() > 40_000
    assert num_turns > 20


def with_pattern(pattern: str) -> TextTokenizer:
    backend = byte_level_tokenizer()
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    return TextTokenizer(backend)


QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)


def test_a_text_that_the_librarys_expressions_give_up_is_the_clients_to_change() -> None:
    """The library panics after ten million steps back, of which Qwen's pattern takes one a blank."""
    text = with_pattern(r"(?:\s|\s)*!|\s|\S+")
    before = text.encode("so it goes", allow_special=False)
    with pytest.raises(BadRequestError, match="characters of one kind") as refused:
        text.encode(" " * 28 + "x", allow_special=False)
    assert isinstance(refused.value.__cause__, PanicError)
    assert text.encode("so it goes", allow_special=False) == before


@pytest.mark.parametrize("kind", [" ", "\n", " \n", "\t", "a", "A", "7", "!", "\u0301", "語", "\u00a0", " a"])
def test_long_runs_of_one_kind_have_the_librarys_ids(kind: str) -> None:
    text, run = with_pattern(QWEN), kind * 30_000 + "x"
    expected = text.backend.encode(run, add_special_tokens=False).ids
    assert text.encode(run, allow_special=True) == tuple(expected)


def test_another_panic_of_the_library_is_no_clients_fault() -> None:
    class Panicking:
        def encode_batch_fast(self, *_: object, **__: object) -> None:
            raise BaseException("called `Option::unwrap()` on a `None` value")

    text = with_pattern(QWEN)
    text.backend = Panicking()  # type: ignore[assignment]  # of the library's class the one method
    with pytest.raises(PanicError, match="unwrap"):
        text.encode("x", allow_special=True)


def test_more_added_tokens_than_are_read_are_refused_before_the_library_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [{"id": 10 + number, "content": f"<|{number}|>"} for number in range(4)]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"added_tokens": listed}))  # else not one: the library would say so
    monkeypatch.setattr(tokenizer_module, "MAX_ADDED", 3)
    with pytest.raises(ModelLoadError, match="it has 4 added tokens; allowed: 3"):
        TextTokenizer.from_folder(tmp_path)
    monkeypatch.setattr(tokenizer_module, "MAX_ADDED", 4)
    with pytest.raises(ModelLoadError, match="not a readable tokenizer"):
        TextTokenizer.from_folder(tmp_path)


def test_so_are_those_that_only_the_config_names_and_those_of_a_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    listed = {str(10 + number): {"content": f"<|{number}|>", "special": True} for number in range(4)}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": listed}))
    assert len(TextTokenizer.from_folder(tmp_path).special_tokens) == 4
    monkeypatch.setattr(tokenizer_module, "MAX_ADDED", 3)
    with pytest.raises(ModelLoadError, match="it has 4 added tokens; allowed: 3"):
        TextTokenizer.from_folder(tmp_path)
    whisper = tmp_path / "whisper"
    whisper.mkdir()
    (whisper / "vocab.json").write_text(
        json.dumps({"a": 0} | {f"<|{number}|>": 1 + number for number in range(4)})
    )
    (whisper / "merges.txt").write_text("")
    with pytest.raises(ModelLoadError, match="it has 4 added tokens; allowed: 3"):
        read_tokenizer(whisper)


def test_tens_of_thousands_of_tokens_that_only_the_config_names_are_added_at_once(tmp_path: Path) -> None:
    """One by one they take a time that grows with the square of their number: here a minute."""
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    number = 20_000
    listed = {str(1 + at): {"content": f"<|{at}|>", "special": bool(at % 2)} for at in range(number)}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": listed}))
    text = TextTokenizer.from_folder(tmp_path)
    assert len(text.special_tokens) == number // 2
    assert text.id_of(f"<|{number - 1}|>") == number
