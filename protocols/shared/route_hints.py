"""What a path that is not served may have meant: other servers' routes, and routes no served model answers.

`actors/http/routes.py` puts it in the 404.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_SPEECH: Final = "/v1/audio/transcriptions"
_INSTEAD: Final = (
    (_SPEECH, r"/(asr|inference|listen|transcribe|speech-to-text|stt|recognize|transcript|detect-language)"),
    (_SPEECH, r"/(api|audio)/(transcribe|transcription)"),
    ("/v1/realtime/client_secrets", r"/realtime/(transcription_)?sessions"),
    ("/v1/responses", r"/(assistants|threads(/.*)?)"),
    ("/v1/messages", r"/complete"),
    ("/v1/completions", r"/(generate|generate_stream|completion|engines/[^/]+/completions|api/generate)"),
    ("/v1/chat/completions", r"/(edits|chat|api/chat|chat/completion)"),
    ("/tokenize", r"/(api/tokenize|tokens)"),
    ("/v1/embeddings", r"/(embed|api/embed|api/embeddings|engines/[^/]+/embeddings)"),
)
"""The route to use, and paths of other servers after their version, if they have one."""
_NEEDS: Final = {
    _SPEECH: "transcribes",
    "/v1/audio/translations": "translates speech",
    "/v1/realtime/client_secrets": "transcribes or chats",
    "/v1/completions": "generates text",
    "/tokenize": "generates text",
    "/detokenize": "generates text",
    "/v1/chat/completions": "chats",
    "/v1/embeddings": "embeds texts",
    "/v1/messages": "chats",
    "/v1/messages/count_tokens": "chats",
    "/v1/responses": "chats",
    "/v1/responses/input_tokens": "chats",
}
"""What a model must do for a route to be served."""
_ABSENT: Final = (
    ("speech is not synthesized", r"/(audio/speech|audio/voices|speak|tts|text-to-speech(/.*)?)"),
    ("scores are not computed", r"/(score|re-?rank|classify|pooling)"),
    ("images and videos are not made", r"/(images|videos)(/.*)?"),
    ("content is not moderated", r"/moderations"),
    (
        "files and batches are not stored; send a file with its request",
        r"/(files|batches|uploads|fine_tuning)(/.*)?",
    ),
)
"""What this server does not do."""


def hint(path: str, served: Collection[str]) -> str:
    """A sentence about a path that is none of `served`: the route to use, why there is none, or where routes
    are listed."""
    plain = path.rstrip("/") or "/"
    if plain in _NEEDS:
        return f"No model served here {_NEEDS[plain]}." if plain not in served else f"Use {plain}."
    if same := [each for each in served if plain.endswith(each.removeprefix("/v1"))]:
        return f"Did you mean {max(same, key=len)}?"
    rest = re.sub(r"^(/openai)?/v[0-9]+(beta)?(?=/)", "", plain)
    for problem, pattern in _ABSENT:
        if re.fullmatch(pattern, rest):
            return f"Here {problem}."
    for route, pattern in _INSTEAD:
        if re.fullmatch(pattern, rest):
            if route in served:
                return f"Use {route}."
            return f"Here that is {route}, and no model served here {_NEEDS[route]}."
    return "GET /docs lists those there are."
