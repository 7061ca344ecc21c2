"""A language model's tokenizer: text ↔ ids, and the chat template's text. Knows files, no prompts.

Text from outside is encoded without control tokens, so that no text whatever can become one. Read
`engine/models/prompts.py` for who decides what is outside, `engine/text/detokenizer.py` for incremental
decoding.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import msgspec
from tokenizers import AddedToken, Tokenizer

from ...protocols.errors import BadRequestError, ModelLoadError
from ...protocols.shared.json_file import read_json
from ...protocols.shared.panics import PanicError, native_call
from .token_bytes import byte_table

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
"""Its batches are of one text here: no threads of its own, nor its warnings where a process forks."""

_NAMED: Final = ("bos_token", "eos_token", "pad_token", "unk_token")
_UNTYPABLE: Final = "\ufdd0"
"""A Unicode noncharacter: names that hold it occur in no text, since `encode` replaces it."""
_MAX_IDS: Final = 2**24
"""No vocabulary is larger. Tables by id take memory for every number below the largest id."""
MAX_ADDED: Final = 2**17
"""Added tokens. Published tokenizers have up to some ten thousands, of sounds; what looks for their names in
a text takes seconds to make of these, and grows with them."""
_OF_WORDS: Final = "\t\n\r▁_-'"
"""What stands in white space and words beside letters, marks, digits and spaces."""
_HTML: Final = re.compile(
    "</?(table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|b|i|u|s|sub|sup|code)>"
)
_REGEX_LIMIT: Final = re.compile("retry-limit|stack limit|BacktrackLimit", re.IGNORECASE)
"""In what the library says where its regular expressions give a text up."""
_MORE_TEMPLATES: Final = "additional_chat_templates"
_SLOW_FILES: Final = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")


class TextTokenizer:
    """Text to ids and back, by a `tokenizers.Tokenizer`."""

    def __init__(
        self,
        backend: Tokenizer,
        *,
        chat_template: str | None = None,
        tool_template: str | None = None,
        names: dict[str, str] | None = None,
    ) -> None:
        self.backend = backend
        """Knows every token; adds nothing in front or behind unless asked to."""
        self.chat_template = chat_template
        """The Jinja source, or None."""
        self.tool_template = tool_template or chat_template
        """That of conversations with tools, for which some have another."""
        self.names = names or {}
        """`bos_token`, `eos_token`, … as text, as far as there are any: templates use them."""
        backend.no_truncation()
        backend.no_padding()
        self._plain, self._control_ids = _without_control_tokens(backend)
        probe = backend.encode("a")
        in_front = takewhile(lambda pair: pair[1], zip(probe.ids, probe.special_tokens_mask, strict=True))
        self.start_ids: tuple[int, ...] = tuple(token_id for token_id, _ in in_front)
        """What the tokenizer puts in front of a plain prompt (Llama's and Gemma's `<bos>`), often nothing.
        What it would put behind one (`add_eos_token`) is left out: an answer goes on from the text."""
        ends = zip(reversed(probe.ids), reversed(probe.special_tokens_mask), strict=True)
        closing = [token_id for token_id, _ in takewhile(lambda pair: pair[1], ends)]
        self.closing_ids: tuple[int, ...] = tuple(reversed(closing[: len(probe.ids) - len(self.start_ids)]))
        """What it puts behind a text to embed: BERT's `[SEP]`, Qwen3-Embedding's `<|endoftext|>`."""

    @classmethod
    def from_folder(cls, folder: Path) -> TextTokenizer:
        """Read `tokenizer.json`, or an older format through `transformers` (none of its remote code).

        Raises ModelLoadError naming the file that is missing or cannot be read.
        """
        path = folder / "tokenizer_config.json"
        config = read_json(path) if path.is_file() else {}
        backend = _read_backend(folder)
        names = {name: _text_of(config.get(name)) for name in _NAMED}
        templates = _chat_templates(folder, config)
        try:
            with native_call:
                _add_missing(backend, config)
                return cls(
                    check_ids(backend),
                    chat_template=templates.get("default"),
                    tool_template=templates.get("tool_use"),
                    names={name: text for name, text in names.items() if text is not None},
                )
        except Exception as error:  # the tokenizers library raises bare Exception
            raise ModelLoadError(f"{folder}: not a usable tokenizer ({_first_line(error)})") from error

    @cached_property
    def byte_table(self) -> Sequence[bytes] | None:
        """See `engine/text/token_bytes.py`."""
        return byte_table(self.backend)

    @cached_property
    def _added_ids(self) -> frozenset[int]:
        return frozenset(self.backend.get_added_tokens_decoder())

    @property
    def grammar_json(self) -> str:
        """The tokenizer as `tokenizers` writes it."""
        return self.backend.to_str()

    @property
    def num_ids(self) -> int:
        """Ids are below this; a model's vocabulary may be larger."""
        vocabulary: dict[str, int] = self.backend.get_vocab(with_added_tokens=True)
        return max(vocabulary.values()) + 1

    def encode(self, text: str, *, allow_special: bool) -> tuple[int, ...]:
        """Ids of `text`; nothing is put in front or behind. Lone surrogates become `?`.

        Without `allow_special` the names of control tokens are ordinary characters. Raises BadRequestError
        for a text that the library gives up: ten million and more characters of one kind in a row.
        """
        chosen = self.backend if allow_special else self._plain
        clean = text.encode("utf-8", "replace").decode("utf-8")
        if not allow_special:
            clean = clean.replace(_UNTYPABLE, "\ufffd")
        try:
            with native_call:
                # Of the library's ways to encode, those of batches alone let other threads run meanwhile.
                ids: list[int] = chosen.encode_batch_fast([clean], add_special_tokens=False)[0].ids
        except PanicError as error:
            if not _REGEX_LIMIT.search(str(error)):
                raise
            raise BadRequestError(
                "The model's tokenizer takes no text with so many characters of one kind, such as blanks, in "
                "a row: at most some millions. Shorten them."
            ) from error
        return tuple(ids)

    def decode(self, token_ids: Iterable[int]) -> str:
        """Text of the ids: special tokens and unknown ids left out, broken UTF-8 as U+FFFD."""
        with native_call:
            text: str = self.backend.decode(list(token_ids), skip_special_tokens=True)
            return text

    def id_of(self, name: str) -> int | None:
        """The id of a token by its exact name, or None."""
        token_id: int | None = self.backend.token_to_id(name)
        return token_id

    def hidden_ids(self, names: Iterable[str]) -> tuple[tuple[int, str], ...]:
        """Those of `names` that are special tokens, which decoding leaves out, with their ids."""
        wanted = frozenset(names)
        return tuple((key, name) for key, name in self.special_tokens if name in wanted)

    @cached_property
    def special_tokens(self) -> tuple[tuple[int, str], ...]:
        """Ids and names of the tokens that decoding leaves out."""
        added = self.backend.get_added_tokens_decoder()
        return tuple((key, token.content) for key, token in added.items() if token.special)

    def added_id(self, name: str) -> int | None:
        """The id of an added token, special or not, by its exact name; None if `name` is ordinary text."""
        token_id = self.id_of(name)
        return token_id if token_id in self._added_ids else None

    def required_id(self, name: str, folder: Path) -> int:
        """The id of an added token that a model needs. Raises ModelLoadError naming it and the `folder`."""
        token_id = self.added_id(name)
        if token_id is None:
            raise ModelLoadError(f"{folder}: the tokenizer has no token {name}")
        return token_id

    def decode_all(self, token_ids: Iterable[int]) -> str:
        """Text of the ids, special tokens by their names."""
        with native_call:
            text: str = self.backend.decode(list(token_ids), skip_special_tokens=False)
            return text

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The id of `eos_token`, if it has one."""
        token_id = self.id_of(self.names.get("eos_token", ""))
        return () if token_id is None else (token_id,)

    def is_control(self, token_id: int) -> bool:
        """Whether text from outside can never become this token."""
        return token_id in self._control_ids


class _Listed(msgspec.Struct):
    """Of a `tokenizer.json`, what is counted before the library reads it."""

    added_tokens: list[msgspec.Raw] = []


def check_added(number: int) -> None:
    """Raises ValueError for more added tokens than are read."""
    if number > MAX_ADDED:
        raise ValueError(f"it has {number} added tokens; allowed: {MAX_ADDED}")


def check_ids(backend: Tokenizer) -> Tokenizer:
    """A tokenizer that was just read. Raises ValueError naming a token whose id is absurd."""
    vocabulary: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    token = max(vocabulary, key=vocabulary.__getitem__, default=None)
    if token is not None and vocabulary[token] >= _MAX_IDS:
        raise ValueError(f"token {token!r} has the id {vocabulary[token]}; allowed: below {_MAX_IDS}")
    return backend


def _read_backend(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            data = path.read_bytes()
            check_added(len(msgspec.json.decode(data, type=_Listed).added_tokens))
            with native_call:
                return Tokenizer.from_buffer(data)
        except Exception as error:  # the tokenizers library raises bare Exception
            raise ModelLoadError(f"{path}: not a readable tokenizer ({error})") from error
    if not any((folder / name).is_file() for name in _SLOW_FILES):
        raise ModelLoadError(f"{folder}: no tokenizer (tokenizer.json, {', '.join(_SLOW_FILES)})")
    from transformers import AutoTokenizer

    try:
        loaded: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # transformers raises whatever its many readers raise
        raise ModelLoadError(f"{folder}: not a readable tokenizer ({_first_line(error)})") from error
    backend: Tokenizer | None = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise ModelLoadError(f"{folder}: {type(loaded).__name__} has no fast version; add a tokenizer.json")
    return backend


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _add_missing(backend: Tokenizer, config: dict[str, Any]) -> None:
    """Tokens that only `tokenizer_config.json` names, or names as special, as `transformers` adds them."""
    listed = config.get("added_tokens_decoder")
    if not isinstance(listed, dict):
        return
    check_added(len(listed))
    known = backend.get_added_tokens_decoder()
    missing: list[AddedToken] = []
    for token_id, token in sorted(listed.items(), key=lambda pair: int(pair[0])):
        there = known.get(int(token_id))
        if (
            there is not None
            and there.content == token["content"]
            and there.special >= token.get("special", False)
        ):
            continue
        kept = ("single_word", "lstrip", "rstrip", "normalized", "special")
        options = {name: bool(token[name]) for name in kept if name in token}
        missing.append(AddedToken(token["content"], **options))
    backend.add_tokens(missing)  # at once: each call looks at all tokens there are


def _text_of(token: object) -> str | None:
    """A token as `tokenizer_config.json` writes it: a string, or an object with its content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _chat_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """By name; most have one, which is called `default`."""
    found = {
        path.stem: path.read_text(encoding="utf-8") for path in (folder / _MORE_TEMPLATES).glob("*.jinja")
    }
    jinja, legacy = folder / "chat_template.jinja", folder / "chat_template.json"
    if jinja.is_file():
        found["default"] = jinja.read_text(encoding="utf-8")
    if "default" in found:
        return found
    template = config.get("chat_template")
    if template is None and legacy.is_file():
        template = read_json(legacy).get("chat_template")
    if not isinstance(template, list):
        template = [{"name": "default", "template": template}]
    named = ((each.get("name"), each.get("template")) for each in template if isinstance(each, dict))
    return {str(name): each for name, each in named if isinstance(each, str)} | found


def _without_control_tokens(backend: Tokenizer) -> tuple[Tokenizer, frozenset[int]]:
    """The same tokenizer for text from outside, and the ids it cannot give.

    Control tokens keep their ids but get names no text has, so that neither a split at added tokens nor
    the model itself (a merge, a whole word found in the vocabulary, a likely piece) gives one. Added
    tokens that are text stay: white space (GPT-NeoX's; Gemma's is written `▁`), words, Gemma's tags of HTML.
    """
    description: dict[str, Any] = json.loads(backend.to_str())
    added: list[dict[str, Any]] = description["added_tokens"]
    control = {str(t["content"]): int(t["id"]) for t in added if t["special"] or not _is_text(t["content"])}
    names = {name: f"{_UNTYPABLE}{token_id}" for name, token_id in control.items()}
    model, vocabulary = description["model"], description["model"].get("vocab")
    if isinstance(vocabulary, list):  # unigram: [piece, score]; places are ids
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
    elif isinstance(vocabulary, dict):
        unknown = model.get("unk_token")  # models look it up by name; it means nothing anyway
        if names.pop(unknown, None):
            added = [token for token in added if token["content"] != unknown]
        model["vocab"] = {names.get(piece, piece): token_id for piece, token_id in vocabulary.items()}
    if model.get("merges"):
        model["merges"] = [pair for pair in model["merges"] if not _makes(pair, control)]
    description["added_tokens"] = [
        token | {"content": names.get(token["content"], token["content"])} for token in added
    ]
    description["post_processor"] = None
    return Tokenizer.from_str(json.dumps(description)), frozenset(control.values())


def _is_text(content: str) -> bool:
    """Whether an added token that is not special means what it says."""
    is_words = all(unicodedata.category(each)[0] in "LMNZ" or each in _OF_WORDS for each in content)
    return is_words or _HTML.fullmatch(content) is not None


def _makes(pair: Sequence[str] | str, control: dict[str, int]) -> bool:
    """Whether a merge makes a control token, or something of one."""
    left, right = pair.split(" ", 1) if isinstance(pair, str) else pair
    return left + right in control or left in control or right in control
