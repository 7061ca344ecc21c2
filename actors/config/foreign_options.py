"""What vLLM calls otherwise, or needs and this server does not: said of its options on the command line.

The parser's own guess at an unknown option goes by its letters (`--max-num-seqs`: `--max-turn-s`). Used by
`actors/commands.py`; the same for transcriptions is `protocols/shared/foreign_options.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..errors import ConfigError

_ONE_DEVICE: Final = "a model runs on one device; start a server for each device, with a balancer in front"
_KNOWN_BY_ITSELF: Final = "the task of a model is known from its checkpoint"
_IN_PARTS: Final = "long prompts are computed in parts, between the tokens of others"
_IN_THE_FOLDER: Final = "weights (*.safetensors), tokenizer and config.json are those of the model's folder"
_IN_FRONT: Final = "that is the work of a proxy in front (docs/operate.md)"
_OPTIONS: Final = {
    "--max-model-len": "it is called --max-context here",
    "--max-num-seqs": "it is called --max-running here",
    "--max-num-batched-tokens": _IN_PARTS,
    "--enable-chunked-prefill": _IN_PARTS,
    "--num-gpu-blocks-override": "it is called --num-blocks here",
    "--kv-cache-memory-bytes": "it is called --kv-memory here",
    "--gpu-memory-utilization": "set the share of the KV cache by --kv-memory, as 0.8",
    "--kv-cache-dtype": "it is called --kv-dtype here",
    "--swap-space": "nothing is swapped; what has to make room is computed again",
    "--cpu-offload-gb": _ONE_DEVICE,
    "--async-scheduling": "use --plans-in-flight 2",
    "--max-logprobs": "the limit is --max-logprob-entries",
    "--mm-processor-kwargs": "it is a field of requests, `mm_processor_kwargs`",
    "--mm-processor-cache-gb": "it is called --media-cache here",
    "--limit-mm-per-prompt": "the limit is --max-media-items",
    "--allowed-local-media-path": "it is called --allowed-media-folder here",
    "--enforce-eager": "use --cuda-graphs off",
    "--speculative-config": "use --ngram-drafts, the number of draft tokens",
    "--compute-type": "use --dtype, or --quantization int8",
    "--tool-call-parser": "it is called --tool-parser here, and auto reads it from the chat template",
    "--enable-auto-tool-choice": "calls are read wherever the chat template writes some (--tool-parser)",
    "--reasoning-parser": "reasoning is separated wherever the chat template writes some",
    "--enable-reasoning": "reasoning is separated wherever the chat template writes some",
    "--enable-prefix-caching": "prefixes are always cached",
    "--enable-prompt-tokens-details": "usage always has the cached tokens",
    "--trust-remote-code": "no code of a checkpoint is ever run",
    "--revision": "download that revision, and serve its folder",
    "--tokenizer": _IN_THE_FOLDER,
    "--load-format": _IN_THE_FOLDER,
    "--hf-overrides": _IN_THE_FOLDER,
    "--download-dir": "set HF_HOME in the environment",
    "--hf-token": "set HF_TOKEN in the environment",
    "--task": _KNOWN_BY_ITSELF,
    "--runner": _KNOWN_BY_ITSELF,
    "--enable-lora": "adapters are not served; merge them into the weights",
    "--lora-modules": "adapters are not served; merge them into the weights",
    "--tensor-parallel-size": _ONE_DEVICE,
    "-tp": _ONE_DEVICE,
    "--pipeline-parallel-size": _ONE_DEVICE,
    "-pp": _ONE_DEVICE,
    "--data-parallel-size": _ONE_DEVICE,
    "-dp": _ONE_DEVICE,
    "--uvicorn-log-level": "it is called --log-level here",
    "--disable-log-requests": "use --access-log off",
    "--disable-uvicorn-access-log": "use --access-log off",
    "--disable-access-log-for-endpoints": "it is called --access-log-skip here",
    "--root-path": "let the proxy in front remove the path",
    "--ssl-keyfile": _IN_FRONT,
    "--ssl-certfile": _IN_FRONT,
    "--seed": "it is a field of requests, `seed`",
}


def refuse_others(tokens: Sequence[str]) -> None:
    """Raise ConfigError for the first option of vLLM's that is none here, saying what there is instead."""
    for token in tokens:
        option = token.partition("=")[0].replace("_", "-")
        if instead := _OPTIONS.get(option) or _OPTIONS.get(option.replace("--no-", "--", 1)):
            raise ConfigError(f"{option} is not an option: {instead}")
