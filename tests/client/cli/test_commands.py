"""The client's commands: what they print, and their exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from sensorium.actors.commands import app, run
from sensorium.actors.help import overview
from sensorium.client import Client
from sensorium.client.bench.commands import bench, bench_text
from sensorium.client.cli import commands
from sensorium.client.requests import FileOptions
from sensorium.protocols.realtime.events import SessionUpdate
from sensorium.protocols.transcription.options import LiveSpeechOptions, RecordingOptions, SpeechOptions
from support.fake_server import Answer, FakeDialog, serve_realtime, serve_rest

VERBOSE = b'{"task":"transcribe","language":"en","duration":1.5,"text":"good day","segments":[],"words":[]}'
STREAM = (
    b'data: {"type":"transcript.text.delta","delta":"good"}\n\n'
    b'data: {"type":"transcript.text.done","text":"good"}\n\ndata: [DONE]\n\n'
)
NOWHERE = "http://127.0.0.1:9"


def test_wrong_usage_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.transcribe([]) == 2
    assert commands.transcribe([tmp_path / "none.wav"]) == 2
    assert commands.transcribe([tmp_path]) == 2
    assert commands.transcribe([Path("-")], stream=True, format="srt") == 2
    assert commands.listen(tmp_path / "none.wav") == 2
    assert bench([]) == 2
    assert bench([tmp_path / "none.wav"]) == 2
    assert bench([tmp_path], rounds=0) == 2
    assert bench([tmp_path], dialect="vllm", left_context_ms=6_000) == 2
    assert bench_text(rounds=0) == 2
    assert bench_text(max_token_id=300) == 2
    assert bench_text(image_side=-3) == 2
    assert commands.listen(Path("-")) == 2
    assert commands.transcribe([tmp_path / "none.wav"], base_url="nonsense") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 14
    assert all(line.startswith("sensorium: ") for line in lines)


def test_hours_of_speech_are_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Their text comes when all of it is there."""
    waits_s: list[float] = []

    def noted(client: Client, *_: object) -> int:
        waits_s.append(client.options.timeout_s)
        return 0

    monkeypatch.setattr(commands, "transcribe_files", noted)
    (tmp_path / "long.wav").write_bytes(b"RIFF")
    assert commands.transcribe([tmp_path / "long.wav"], base_url=NOWHERE) == 0
    assert waits_s[0] > 3600
    assert commands.transcribe([tmp_path / "long.wav"], base_url=NOWHERE, timeout=7) == 0
    assert waits_s[1] == 7


@pytest.mark.parametrize("command", ["transcribe a.wav", "listen", "chat hello", "watch film.mp4"])
def test_how_long_a_command_waits_is_asked(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    assert run([*command.split(), "--base-url", NOWHERE, "--timeout", "-3"]) == 2
    assert capsys.readouterr().err == "sensorium: timeout is -3.0: expected seconds above 0\n"


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    for command, table in (("transcribe", RecordingOptions), ("listen", LiveSpeechOptions)):
        assert run([command, "--help"]) == 0
        shown = capsys.readouterr().out
        for name in table.__annotations__.keys() - {"vad_parameters", "chunking_strategy"}:
            option = f"--{name.replace('_', '-')}"
            assert option[:28] in shown, "a longer one goes on in the next line"
        assert ("--vad-parameters.threshold 0.6" in shown) == (command == "transcribe")
    assert run(["bench", "--help"]) == run(["bench-text", "--help"]) == 0


@pytest.mark.parametrize(
    "command", ["transcribe", "listen", "chat", "watch", "models", "bench", "bench-text"]
)
def test_help_names_no_variable_that_is_not_read(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a server, SENSORIUM_MODEL and so on, change nothing that a client does."""
    capsys.readouterr()
    assert run([command, "--help"]) == 0
    shown = set(re.findall(r"SENSORIUM_\w+", capsys.readouterr().out))
    assert "SENSORIUM_CLIENT_API_KEY" in shown
    assert shown <= {"SENSORIUM_CONFIG", "SENSORIUM_BASE_URL", "SENSORIUM_CLIENT_API_KEY"}


def test_no_server_is_1_and_one_line(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.transcribe([recording], base_url=NOWHERE) == 1
    assert commands.listen(recording, base_url=NOWHERE) == 1
    lines = capsys.readouterr().err.splitlines()
    assert all(line.endswith(f"no server at {NOWHERE}; start one with: sensorium serve") for line in lines)
    assert len(lines) == 2


@pytest.mark.slow
def test_one_file_is_printed_and_several_are_titled(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_rest({"/v1/audio/transcriptions": Answer(b"good day\n", content_type="text/plain")}) as (
        url,
        _,
    ):
        assert commands.transcribe([recording], base_url=url) == 0
        assert capsys.readouterr().out == "good day\n"
        assert commands.transcribe([recording, recording], base_url=url) == 0
        assert capsys.readouterr().out == f"== {recording}\ngood day\n" * 2


@pytest.mark.slow
def test_the_options_of_voice_activity_are_sent(recording: Path) -> None:
    with serve_rest({"/v1/audio/transcriptions": Answer(b"x", content_type="text/plain")}) as (url, requests):
        words = ["transcribe", str(recording), "--base-url", url]
        assert run([*words, "--vad-parameters.threshold", "0.6", "--vad-parameters.speech_pad_ms", "50"]) == 0
        assert run([*words, "--vad-filter"]) == 0
        assert run(words) == 0
        more = [
            "--multichannel",
            "--audio-track",
            "1",
            "--temperature",
            "0",
            "--temperature",
            "0.4",
            "--best-of",
            "3",
        ]
        more += ["--beam-size", "5", "--length-penalty", "0.5", "--patience", "2"]
        more += ["--repetition-penalty", "1.2", "--no-repeat-ngram-size", "3"]
        assert run([*words, *more, "--hallucination-silence-threshold", "2"]) == 0
        shown = ["--max-line-width", "20", "--max-line-count", "1", "--max-words-per-line", "3"]
        assert run([*words, "--format", "srt", *shown, "--highlight-words"]) == 0
        assert run([*words, *shown]) == 2
    assert len(requests) == 5
    assert b'"multichannel"\r\n\r\nTrue' in requests[3].body
    assert b'"audio_track"\r\n\r\n1' in requests[3].body
    assert requests[3].body.count(b'name="temperature[]"') == 2
    assert b'"best_of"\r\n\r\n3' in requests[3].body
    assert b'"beam_size"\r\n\r\n5' in requests[3].body
    assert b'"length_penalty"\r\n\r\n0.5' in requests[3].body
    assert b'"patience"\r\n\r\n2' in requests[3].body
    assert b'"repetition_penalty"\r\n\r\n1.2' in requests[3].body
    assert b'"no_repeat_ngram_size"\r\n\r\n3' in requests[3].body
    assert b"beam_size" not in requests[2].body
    assert b'"hallucination_silence_threshold"\r\n\r\n2' in requests[3].body
    assert b'"vad_filter"\r\n\r\nTrue' in requests[0].body
    assert b'"vad_parameters"\r\n\r\n{"threshold":0.6,"speech_pad_ms":50' in requests[0].body
    assert b"vad_parameters" not in requests[1].body
    assert b"max_line" not in requests[2].body
    assert b"highlight_words" not in requests[2].body
    assert b'"max_line_width"\r\n\r\n20' in requests[4].body
    assert b'"max_line_count"\r\n\r\n1' in requests[4].body
    assert b'"max_words_per_line"\r\n\r\n3' in requests[4].body
    assert b'"highlight_words"\r\n\r\nTrue' in requests[4].body
    assert b"vad_filter" in requests[1].body
    assert b"vad_filter" not in requests[2].body


@pytest.mark.slow
def test_standard_input_and_an_output_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"audio")))
    with serve_rest({"/v1/audio/transcriptions": Answer(VERBOSE)}) as (url, requests):
        out = tmp_path / "out"
        assert commands.transcribe([Path("-")], format="json", output_dir=out, base_url=url) == 0
    assert json.loads((out / "stdin.json").read_text())["text"] == "good day"
    assert b"audio" in requests[0].body
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_one_bad_file_does_not_stop_the_others(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = b'{"error":{"message":"not audio","type":"t","param":"file","code":"invalid_media"}}'
    with serve_rest({"/v1/audio/transcriptions": Answer(body, 400)}) as (url, requests):
        assert commands.transcribe([recording, recording], base_url=url) == 1
        assert len(requests) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"sensorium: {recording}: not audio (400, invalid_media, param: file)"] * 2


@pytest.mark.slow
def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = recording.with_name("broken.wav")
    broken.write_bytes(b"x")
    open_file = Path.open

    def failing_open(path: Path, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 (as Path.open)
        if path == broken:
            raise PermissionError(13, "Permission denied", str(path))
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", failing_open)
    with serve_rest({"/v1/audio/transcriptions": Answer(b"good day\n", content_type="text/plain")}) as (
        url,
        _,
    ):
        assert commands.transcribe([broken, recording], base_url=url) == 1
    shown = capsys.readouterr()
    assert shown.out == f"== {recording}\ngood day\n"
    assert shown.err.startswith(f"sensorium: {broken}: ")
    assert shown.err.count("\n") == 1


@pytest.mark.slow
def test_what_can_be_read_is_transcribed_be_it_a_pipe(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = recording.with_name("pipe")
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"what a command says",), daemon=True)
    with serve_rest({"/v1/audio/transcriptions": Answer(b"good day\n", content_type="text/plain")}) as (
        url,
        requests,
    ):
        writer.start()
        assert commands.transcribe([pipe], base_url=url) == 0
        writer.join(10)
    assert b"what a command says" in requests[0].body
    assert capsys.readouterr().out == "good day\n"


@pytest.mark.slow
def test_what_is_known_about_the_speech_is_passed_on(recording: Path) -> None:
    hints: SpeechOptions = {"languages": ["de", "en"], "keywords": ["Ada Lovelace"]}
    dialog = FakeDialog()
    with serve_realtime(lambda: dialog) as url:
        live: LiveSpeechOptions = {"delay": "low", "utterance_end_ms": 900, "left_context_ms": 9_000, **hints}
        code = commands.listen(recording, base_url=url, options=live)
    assert code == 0
    update = dialog.received[0]
    assert isinstance(update, SessionUpdate)
    assert msgspec.to_builtins(update.session)["audio"]["input"]["transcription"] == live
    with serve_rest({"/v1/audio/transcriptions": Answer(STREAM)}) as (url, requests):
        assert commands.transcribe([recording], base_url=url, options=cast(FileOptions, hints)) == 0
        assert (
            commands.transcribe([recording], base_url=url, stream=True, options=cast(FileOptions, hints)) == 0
        )
    for request in requests:
        assert request.body.count(b'name="languages[]"') == 2
        assert b"Ada Lovelace" in request.body


@pytest.mark.slow
def test_json_documents_are_lines_that_name_their_files(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_rest({"/v1/audio/transcriptions": Answer(VERBOSE)}) as (url, _):
        both: list[str | Path] = [recording, recording]
        for files in (both, both[:1]):
            assert commands.transcribe(files, format="json", base_url=url) == 0
            lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert [(line["file"], line["text"]) for line in lines] == [(str(recording), "good day")] * len(
                files
            )
        other = recording.rename(recording.with_name(os.fsdecode(b"caf\xe9.wav")))  # of another encoding
        assert commands.transcribe([other], format="json", base_url=url) == 0
        assert Path(json.loads(capsys.readouterr().out)["file"]).name == "caf\ufffd.wav"


@pytest.mark.slow
def test_the_models_of_a_server_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    card = b'{"id":"m","created":1,"abilities":["transcribe"],"languages":["en","de"],"object":"model"}'
    seeing = b'{"id":"n","created":1,"abilities":["chat"],"input_modalities":["text","image"]}'
    body = b'{"object":"list","data":[' + card + b"," + seeing + b"]}"
    with serve_rest({"/v1/models": Answer(body)}) as (url, _):
        assert run(["models", "--base-url", url]) == 0
    assert capsys.readouterr().out == "m: transcribe · 2 languages\nn: chat · takes text, image\n"


def test_a_shell_can_be_taught_the_options() -> None:
    assert "--install-completion" in overview()
    assert "--kv-memory" in app.generate_completion(shell="bash")


WITHOUT_SERVER = """
import sys
import threading
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "numpy", "starlette", "hypercorn", "transformers", "av"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from sensorium.actors.cli import main
main()
"""
"""As where only the extra [cli] is installed."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("transcribe", "--help"), 0, "Transcribe audio files"),
        (("listen", "--help"), 0, "Transcribe the microphone"),
        (("serve", "--port", "0"), 1, "pip install ./engine/checkpoints '.[serve]'"),
    ],
)
def test_the_clients_commands_need_no_torch(arguments: tuple[str, ...], code: int, expected: str) -> None:
    command = [sys.executable, "-c", WITHOUT_SERVER, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert expected in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    ["serve --max-context 0.5", "serve --max_context=0.5", "transcribe --best-of 1.5", "bench --streams 2.5"],
)
def test_part_of_a_whole_number_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Rounded, half a token would be no limit at all."""
    assert run([*command.split(), "a.wav"]) == 1
    assert re.fullmatch(
        r"sensorium: --[a-z-_]+ is '[012]\.5'; allowed: a whole number\n", capsys.readouterr().err
    )


def test_a_file_may_be_called_as_an_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["transcribe", "seed", "1.wav"]) == 2
    assert capsys.readouterr().err == "sensorium: no such file: seed\n"


def test_nor_is_it_taken_from_a_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SENSORIUM_MAX_SESSIONS", "2.5")
    assert run(["serve"]) == 1
    assert capsys.readouterr().err == "sensorium: SENSORIUM_MAX_SESSIONS is '2.5'; allowed: a whole number\n"


def test_a_misspelt_option_is_no_source(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["listen", "--modle", "x"])
    assert "there is no option --modle" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--word_timestamps", "; words and their times are in --format json"),
        ("--output_format=srt", "; it is called --format here"),
        ("--initial-prompt", "; it is called --prompt here"),
        ("--device", "; it is an option of sensorium serve"),
        ("-f", "; it is called --format here"),
        ("-o", "; it is called --output-dir here"),
        ("--fp16", "; it is --dtype of sensorium serve"),
        ("--compute_type", "; it is --dtype of sensorium serve"),
        ("--print_progress", "; --stream shows the text while it is transcribed"),
        ("--align_model", "; no second model aligns words; their times are in --format json"),
        ("--vad_onset", "; it is --vad-parameters.threshold here"),
        ("--hotwords", "; name words to expect by --keywords"),
        ("--langauge", "; did you mean --language?"),
        ("--zzz", ""),
    ],
)
def test_a_misspelt_option_is_no_file(option: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is one of Whisper's own command line."""
    assert run(["transcribe", option, "True", "talk.wav"]) == 2
    assert capsys.readouterr().err == f"sensorium: there is no option {option}{hint}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "value", "sent"),
    [
        ("--vad_filter", "True", True),
        ("--vad_filter", "False", False),
        ("--condition_on_previous_text", "True", True),
        ("--condition-on-previous-text", "False", False),
        ("--multichannel", "True", True),
    ],
)
def test_true_and_false_stand_behind_an_option_as_elsewhere(
    option: str, value: str, sent: bool, recording: Path
) -> None:
    answers = {"/v1/audio/transcriptions": Answer(b"good", content_type="text/plain")}
    with serve_rest(answers) as (url, requests):
        assert run(["transcribe", option, value, str(recording), "--base-url", url]) == 0
    field = option.removeprefix("--").replace("-", "_")
    assert (f'name="{field}"'.encode() in requests[0].body) == sent


@pytest.mark.parametrize(("command", "hint"), [("nosuch", "."), ("serv", "; did you mean serve?")])
def test_a_command_that_there_is_not_names_all(
    command: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command]) == 1
    expected = capsys.readouterr().err
    assert expected.startswith(f"sensorium: there is no command '{command}'{hint} The commands are: ")
    assert {"transcribe", "serve", "models", "kernels"} <= set(
        expected.strip().partition("are: ")[2].split(", ")
    )


@pytest.mark.parametrize("option", ["--temprature", "--temprature=0", "-t"])
def test_a_misspelt_option_is_no_question(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["chat", "Why is the sky blue?", option])
    expected = " ".join(capsys.readouterr().err.replace("│", "").split())  # in a frame of so many columns
    assert f"there is no option {option} (" in expected
    _, bound, _ = app.parse_args(["chat", "-5 + 3?", "--5", "-", "What does --hard do?"])
    assert bound.arguments["question"] == ["-5 + 3?", "--5", "-", "What does --hard do?"]


def test_the_commands_mount_and_take_a_lone_hyphen(monkeypatch: pytest.MonkeyPatch) -> None:
    cyclopts = pytest.importorskip("cyclopts")
    app = cyclopts.App(name="sensorium", result_action="return_value")
    commands.mount(app)
    _, bound, _ = app.parse_args(["transcribe", "-", "--format", "srt"])
    assert bound.arguments["files"] == ["-"]
    assert bound.arguments["format"] == "srt"
    _, bound, _ = app.parse_args(["listen", "-", "--audio-format", "auto"])
    assert bound.arguments["source"] == Path("-")
    _, bound, _ = app.parse_args(["bench", "a.wav", "--streams", "1", "--streams", "8"])
    assert bound.arguments["streams"] == [1, 8]
