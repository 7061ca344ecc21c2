"""`sensorium --help`: what there is, shown without loading any of it.

The help of a single command is made from its function by cyclopts (`actors/commands.py`), which takes a
second to load with everything that the commands need. Imports nothing; read next: `actors/cli.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

COMMANDS = {
    "serve": "Serve models over HTTP and WebSocket, in OpenAI's shapes.",
    "gateway": "Relay requests and live sessions to several servers of OpenAI's API, ours or others.",
    "transcribe": "Transcribe audio files of any kind.",
    "listen": "Transcribe the microphone live, or a WAV file at the pace it was spoken.",
    "chat": "Ask a model, or talk with it on a terminal.",
    "embed": "Make vectors of texts: for each a line with a JSON list of numbers, in order.",
    "watch": "Show a film, a camera or the screen to a model, and ask about it again and again.",
    "engine": "Run models for servers on other machines.",
    "cluster": "Run engines on the machines of a Ray cluster, as many as requests need.",
    "models": "List the embedded models, or those of a server, or report how a folder would be served.",
    "kernels": "Measure the kernels of a model on this CPU, and show which are used.",
    "bench": "Measure OpenAI-shaped servers, interleaved, with live sessions or whole files.",
    "bench-text": "Measure text generation of OpenAI-shaped servers, interleaved.",
}
"""Every command and what it does: the summary of its own help."""
OPTIONS = {
    "--config FILE": "TOML file with options of the command, as port = 8000, or of several under tables.",
    "--help, -h": "Show this help; sensorium COMMAND --help shows that of a command.",
    "--install-completion": "Complete commands and options in this shell from now on.",
    "--version": "Show the version.",
}


def is_overview(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for the list of commands."""
    return list(arguments) in ([], ["--help"], ["-h"])


def overview() -> str:
    """All commands, and the options that none of them has for itself."""
    width = 2 + max(map(len, (*COMMANDS, *OPTIONS)))
    return "\n".join(
        (
            "Usage: sensorium COMMAND [OPTIONS]",
            "",
            "Realtime multimodal inference: audio and vision stream in, text streams out.",
            "",
            "Commands:",
            *(f"  {name:{width}}{text}" for name, text in COMMANDS.items()),
            "",
            "Options:",
            *(f"  {name:{width}}{text}" for name, text in OPTIONS.items()),
            "",
            "Examples:",
            "  sensorium serve",
            "  sensorium transcribe talk.mp3",
            '  sensorium chat "What is in this picture?" --image kitchen.jpg',
        )
    )
