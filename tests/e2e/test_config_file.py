"""The TOML file of `--config`: what it says is heeded, and what it says in vain is an error."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import httpx
import pytest
from sensorium.actors import commands
from sensorium.actors.config.toml_file import SECRETS, read_options
from support.command_line import Run, serving

pytestmark = pytest.mark.slow


def test_a_configuration_file_that_cannot_be_read_is_one_line(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        done = run("serve", "--config", str(path))
        assert done.returncode == 1
        assert done.stderr.startswith(f"sensorium: --config is '{path}': ")
        assert done.stderr.count("\n") == 1


def test_a_configuration_file_may_begin_with_a_mark(run: Run, tmp_path: Path) -> None:
    """As editors of Windows write UTF-8."""
    file = tmp_path / "server.toml"
    file.write_text("port = 70000\n", "utf-8-sig")
    done = run("serve", "--config", str(file))
    assert done.stderr == "sensorium: --port is 70000; allowed: 0 to 65535\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[engine]\napi_key = ['k']\n", "[engine]"),
        ("[no.such]\nx = 1\n", "[no]"),
        ("port = \n", "not TOML"),
        ("prot = 1\n", "prot is not an option"),
        ("listen = 1\n", "listen is not an option"),
        ("[[serve]]\nport = 1\n", "serve is not an option"),
        ("[serve]\napi-keys = ['k']\n", "[serve] api-keys is not an option"),
        ("[serve.listen]\napi_key = ['k']\n", "[serve] listen is not an option"),
        ("[transcribe]\nport = 1\n", "[transcribe] port is not an option"),
        ("'*' = 1\n", "* is not an option"),
        ("model-tables = ['tiny-whisper:max-running=1']\n", "model-tables is not an option"),
        ("[model]\nkv-memory = '1GiB'\n", "[model] kv-memory is not a table; allowed: [model.NAME]"),
        (
            "[model.tiny-whisper]\nkv-memry = '1GiB'\n",
            "[model.tiny-whisper] kv-memry is not an option of one",
        ),
        ("[model.tiny-whisper]\napi_key = 'k'\n", "[model.tiny-whisper] api_key is not an option of one"),
        ("[serve.model.x]\nmax-running = [1]\n", "[serve.model.x] max-running is [1]: Expected `int`"),
        ("[transcribe.model.x]\nmax-running = 1\n", "[transcribe.model]"),
        ("response-store = 5\n", "response-store is 5: Expected `str`, got `int`"),
        ("host = 1979-05-27\n", "host is datetime.date(1979, 5, 27): Expected `str`"),
        ("port = 8000.5\n", "port is 8000.5: Expected `int`"),
        ("port = '8000'\n", "port is '8000': Expected `int`"),
        ("port = true\n", "port is True: Expected `int`"),
        ("drain-s = 'soon'\n", "drain-s is 'soon': Expected `float`"),
        ("cuda-graphs = 'yes'\n", "cuda-graphs is 'yes': Invalid enum value 'yes'; allowed: auto, on, off"),
        ("api-key = []\n", "api-key is empty; allowed: a value, or no such line"),
        ("[serve]\napi-key-file = ''\n", "[serve] api-key-file is empty"),
        ("allowed-media-folder = ['']\n", "allowed-media-folder is empty"),
        ("allowed-media-folder = ['/srv', '']\n", "allowed-media-folder is empty"),
        ("[transcribe]\nfiles = ['a.wav']\n", "[transcribe] files is not an option"),
        ("[watch]\nquestion = 'Who?'\n", "[watch] question is not an option"),
        ("[model.tiny-whisper]\nkv-memory = 0.5\n", "[model.tiny-whisper] kv-memory is 0.5: Expected `str`"),
    ],
)
def test_what_a_configuration_file_would_be_ignored_for_is_an_error(
    run: Run, tmp_path: Path, text: str, named: str
) -> None:
    """And one line, before anything is served without the key that the file may have asked for."""
    file = tmp_path / "server.toml"
    file.write_text(text)
    done = run("serve", "--config", str(file))
    assert done.returncode == 1
    assert done.stderr.startswith(f"sensorium: --config is '{file}': ")
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("api-key = 5550100\n", "api-key is of type int: Expected `array`"),
        (
            "api_key = ['s5550100', 5550100]\n",
            "api_key is of type list: Expected `str`, got `int` at [1]",
        ),
        ("[transcribe]\napi-key = 5550100\n", "[transcribe] api-key is of type int: Expected `str | null`"),
        ("call-callback-secret = [5550100]\n", "call-callback-secret is of type list: Expected `str`"),
        ("api-key = 5550100 5\n", "not TOML"),
        ("api-key = s5550100\n", "not TOML"),
        ("api-key = 's5550100\n", "not TOML"),
        ("[model.x]\napi-key = 's5550100'\n", "api-key is not an option of one model"),
    ],
)
def test_a_secret_that_is_said_wrongly_is_not_shown(run: Run, tmp_path: Path, text: str, named: str) -> None:
    """Who left its quotes out finds the type in the message, and nobody finds the key in the log."""
    file = tmp_path / "server.toml"
    file.write_text(text)
    done = run("serve", "--config", str(file))
    assert done.returncode == 1
    assert named in done.stderr
    assert "5550100" not in done.stdout + done.stderr.replace(str(file), "")


def test_every_key_and_secret_is_known_as_one() -> None:
    """By what they are called; a file or a number of such is none."""
    called = {name for types in commands._known_options().values() for name in types}
    files = {"tls_key", "engine_tls_key"}  # whose contents are secret, not their names
    named = {name for name in called if re.search(r"(^|_)(key|secret|password|token)$", name)}
    assert named - files == SECRETS


def test_every_option_may_be_in_a_file_as_its_default_is(tmp_path: Path) -> None:
    """So that no type of an option is one that a file cannot say."""
    file, known = tmp_path / "server.toml", commands._known_options()
    values = {bool: "true", int: "1", float: "0.5", str: "'a'", Path: "'a'"}
    for command, types in known.items():
        for name, kind in types.items():
            plain = [each for each in (kind, *get_args(kind)) if each in values]
            inner = [each for inner in get_args(kind) for each in get_args(inner) if each in values]
            words = [repr(each) for each in _words(kind)]
            (written, *_) = [*words, *(values[each] for each in (*plain, *inner))]
            file.write_text(f"[{command}]\n{name} = {written}\n")
            if name == "vad_parameters":  # a table
                continue
            read_options(file, command, known, {})


def _words(kind: Any) -> list[str]:  # noqa: ANN401 (a type)
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [word for each in get_args(kind) for word in _words(each)]


def test_one_configuration_file_serves_several_commands(run: Run, lights: bytes, tmp_path: Path) -> None:
    """Each by a table, beside variables; and those of a server are nothing to a client's commands."""
    file, audio = tmp_path / "sensorium.toml", tmp_path / "a.wav"
    audio.write_bytes(lights)
    file.write_text(
        "[serve]\nport = 0\nmodels = ['tiny-whisper']\nserved-model-name = ['mine']\n"
        "api_key = ['k']\n[transcribe]\napi_key = 'k'\nformat = 'json'\n[bench-text]\nrounds = 1\n"
    )
    with serving("--config", str(file), SENSORIUM_MAX_UPLOAD_MIB="0.5") as (_, url):
        assert httpx.get(f"{url}/v1/models").status_code == 401
        with httpx.Client(base_url=f"{url}/v1", headers={"Authorization": "Bearer k"}) as client:
            assert [model["id"] for model in client.get("/models").json()["data"]] == ["mine"]
            large = client.post("/audio/transcriptions", files={"file": ("a.wav", bytes(2_000_000))})
            assert large.status_code == 413
        at = {"SENSORIUM_BASE_URL": url, "SENSORIUM_API_KEY": "another", "SENSORIUM_MODEL": "none"}
        done = run("transcribe", str(audio), "--config", str(file), **at)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["text"]
        plain = run("transcribe", str(audio), SENSORIUM_CLIENT_API_KEY="k", **at)
        assert plain.returncode == 0, plain.stderr
        assert plain.stdout.strip() == json.loads(done.stdout)["text"].strip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model.nobody]\nmax-running = 1\n", "'nobody:max-running=1'; allowed names: tiny-qwen3-vl, "),
        ("[model.tiny-qwen3-asr]\nmax-running = true\n", "max-running is True: Expected `int`, got `bool`"),
        ("[serve.model.tiny-qwen3-asr]\nmax-running = 9999\n", "--max-running is 9999; allowed: 0 to 4096"),
    ],
)
def test_a_table_of_a_model_is_checked_as_its_option_is(
    run: Run, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text)
    done = run("serve", "--config", str(file))
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_tables_say_how_single_models_run_and_the_command_line_goes_first(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(
        "port = 0\nmodels = ['tiny-whisper', 'tiny-qwen3-asr']\napi_key = ['k']\nmax-running = 3\n"
        "[serve]\nnum-blocks = 64\n"
        "[model.tiny-whisper]\nmax-running = 5\nnum_blocks = 70\n"
        "[serve.model.tiny-qwen3-asr]\nnum-blocks = 300\n"
    )
    arguments = ("--config", str(file), "--model", "tiny-whisper:num-blocks=90")
    with serving(*arguments) as (_, url):
        assert httpx.get(f"{url}/v1/models").status_code == 401
        text = httpx.get(f"{url}/metrics", headers={"Authorization": "Bearer k"}).text
    blocks = dict(re.findall(r'^sensorium_kv_blocks\{model="([^"]+)"\} (\d+)', text, re.M))
    assert {name: int(number) for name, number in blocks.items()} == {
        "tiny-whisper": 90,
        "tiny-qwen3-asr": 300,
    }
