"""Finds a checkpoint's folder, and reads its safetensors: every tensor accounted for before one is read.

Knows folders, names and shapes; which names and shapes a family expects is its own file's business
(`engine/models/`, `engine/models/whisper/source.py`). Nothing is unpickled. `engine/models/registry.py` is
the way in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ...kernels.linear.linear import AdaptedWeight, LinearWeight, arrange_linear, arrange_parts
from ...kernels.linear.quantized_linear import num_packed_bytes
from ...kernels.linear.unpack import Unpacked
from ...kernels.linear.weight_codes import GRIDS, HEAD_GRID, Grid, Quantization
from ...protocols.errors import ModelLoadError
from ...protocols.shared.json_file import read_json
from .embedded import A_CHECKPOINT, embedded_folder, not_embedded
from .hub_names import hub_name
from .memory import host_bytes
from .packed_weights import IGNORED, PackedWeight, Stored, faults_of, find_packed
from .packed_weights import Shape as Shape
from .quantization_config import Published

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES: Final = (
    "*.json",
    "*.jinja",
    "*.model",  # sentencepiece vocabularies
    "merges.txt",
    "model.safetensors",
    "model-*-of-*.safetensors",
)
_MAX_NAMED = 8  # tensors named per kind of fault


_FLOATS: Final = ("F64", "F32", "F16", "BF16")  # safetensors' names


_UNUSED: Final = (".rotary_emb.inv_freq", ".num_batches_tracked")
"""What early Llama checkpoints store though it follows from the config, and a counter of training."""


class TensorReader:
    """The tensors of a checked checkpoint, each read when it is taken and held by nobody else.

    So a model that rearranges what it takes (packs, fuses) never holds a second copy of all of it. To be
    used by one thread; `finish` at the end.
    """

    def __init__(
        self,
        folder: Path,
        stored: Mapping[str, Stored],
        device: torch.device,
        dtype: torch.dtype,
        quantization: Quantization = "none",
        packed: Mapping[str, PackedWeight] | None = None,
        *,
        adaptable: bool = False,
        as_numbers: Collection[str] = (),
    ) -> None:
        self.folder = folder
        self.adaptable = adaptable
        """Whether adapters may change the products of `take_linear`."""
        self.device = device
        self.dtype = dtype
        self.quantization = quantization
        self._stored = dict(stored)
        self._packed = dict(packed or {})
        self._as_numbers = frozenset(as_numbers)
        self._files: dict[Path, Any] = {}

    def __contains__(self, name: object) -> bool:
        """Whether the checkpoint holds it and nobody has taken it yet."""
        return name in self._stored or name in self._packed

    def take(self, name: str) -> Tensor:
        """One tensor, on the device and in the type asked for. Each can be taken once."""
        if name in self._packed:
            unpacked = self._packed.pop(name).unpack(self._read)
            weight = unpacked.weight() if isinstance(unpacked, Unpacked) else unpacked
            tensor = weight.to(device=self.device, dtype=self.dtype)
            check_finite(tensor, f"{self.folder}: {name}")
            return tensor
        stored = self._stored.pop(name)
        # A copy, else it would hold the whole file's mapping.
        tensor = self._read(stored).to(device=self.device, dtype=self.dtype, copy=True)
        check_finite(tensor, f"{stored.path}: {stored.key}")
        return tensor

    def _read(self, stored: Stored) -> Tensor:
        try:
            file = self._files.get(stored.path)
            if file is None:
                file = self._files[stored.path] = safe_open(stored.path, framework="pt")
            return cast(Tensor, file.get_tensor(stored.key))
        except (SafetensorError, OSError) as error:
            raise ModelLoadError(f"{stored.path}: cannot read {stored.key} ({error})") from error

    def saved_bytes(self, prefix: str = "") -> int:
        """Bytes that published codes of such names, not taken yet, take less than numbers of `dtype`."""
        codes = [name for name in self._packed if name.startswith(prefix) and self.are_codes(name)]
        return sum(self._packed[name].saved_bytes(self.dtype) for name in codes)

    def are_codes(self, name: str) -> bool:
        """Whether a product is computed with its codes."""
        packed = self._packed.get(name)
        has_codes = packed is not None and packed.grid is not None and self.device.type == "cpu"
        return has_codes and name not in self._as_numbers

    def take_all(self, *names: str) -> Tensor:
        """Several tensors, joined along their first axis."""
        return torch.cat([self.take(name) for name in names])

    def take_linear(self, *names: str, bias: Tensor | None = None) -> LinearWeight:
        """Several weights, joined and arranged for products, in as few bits as was asked for."""
        if any(map(self.are_codes, names)):
            weight = arrange_parts([self._take_codes(name) for name in names], bias)
        else:
            weight = arrange_linear(self.take_all(*names), bias, GRIDS[self.quantization])
        return AdaptedWeight(weight, names) if self.adaptable else weight

    def types(self) -> dict[str, str]:
        """What the numbers of each tensor fit into, as safetensors calls it."""
        packed = {name: each.number_type for name, each in self._packed.items()}
        return {name: each.dtype for name, each in self._stored.items()} | packed

    def packed(self, name: str) -> PackedWeight:
        """How a weight that is not taken yet is stored in fewer bits."""
        return self._packed[name]

    def describe_packed(self) -> str:
        """What becomes of weights that were published in fewer bits, for people."""
        codes = [each for each in self._packed.values() if self.are_codes(each.name)]
        bits = sorted({each.grid.bits for each in codes if each.grid is not None})
        as_codes = f"{len(codes)} weights stay codes of {' and '.join(map(str, bits))} bits" if codes else ""
        others = len(self._packed) - len(codes)
        name = str(self.dtype).removeprefix("torch.") if self.quantization == "none" else self.quantization
        as_numbers = f"{others} weights become {name}" if others else ""
        return ", ".join(filter(None, (as_codes, as_numbers))) or "no weight is in fewer bits"

    def _take_codes(self, name: str) -> Unpacked | Tensor:
        if not self.are_codes(name):
            return self.take(name)
        unpacked = self._packed.pop(name).unpack(self._read)
        if isinstance(unpacked, Unpacked):
            check_finite(unpacked.codes.scales, f"{self.folder}: scales of {name}")
        return unpacked

    def skip(self, name: str) -> None:
        """This one is not needed."""
        self._stored.pop(name, None)
        self._packed.pop(name, None)

    def finish(self) -> None:
        """Close the files. Every tensor must have been taken or skipped: a forgotten one is our bug."""
        self._files.clear()
        left = [*self._stored, *self._packed]
        assert not left, f"never taken: {listed(left)}"


def find_folder(model: str | Path) -> Path:
    """The local folder of a model, downloading it from the hub if it is a hub id, or a name for one.

    Raises ModelLoadError where there is none, or where a pipe, a socket or a device lies in a file's place:
    reading it would wait for ever.
    """
    name = str(model)
    if (embedded := embedded_folder(name)) is not None:
        return embedded
    folder = Path(model).expanduser()
    if folder.is_dir():
        for path in (path for pattern in _HUB_FILES for path in folder.glob(pattern)):
            if path.exists() and not (path.is_file() or path.is_dir()):
                raise ModelLoadError(f"{path}: not a regular file")
        return folder
    if folder.is_file():
        raise ModelLoadError(f"{name}: a file; {A_CHECKPOINT}")
    known = hub_name(name)
    if isinstance(model, str) and _HUB_ID.fullmatch(known) and not known.startswith("."):
        return _download(known)
    raise not_embedded(name)


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(_HUB_FILES)))
    except RepositoryNotFoundError:
        raise ModelLoadError(f"{name}: no such folder, and no such public repository on the hub") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelLoadError(
            f"{name}: no such folder, not in the local hub cache, and the hub could not be reached ({reason})"
        ) from error


def free_bytes(device: torch.device) -> int:
    """Memory of a device that may be taken."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else host_bytes()


def choose_device(device: str) -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:N` as a device that exists here."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ModelLoadError(f"device {device!r} is not auto, cpu or cuda") from None
    if chosen.type not in ("cpu", "cuda"):
        raise ModelLoadError(f"device {device!r} is not auto, cpu or cuda")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError(f"device {device!r}: this machine has no usable CUDA device")
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto`, `float32`, `bfloat16` or `float16` as a type this device computes in."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype == "auto":
        if device.type == "cuda":
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32
    if dtype not in known:
        raise ModelLoadError(f"dtype {dtype!r} is not auto, {', '.join(known)}")
    if dtype == "float16" and device.type == "cpu":
        raise ModelLoadError("dtype float16 needs a CUDA device; use bfloat16 or float32 on CPUs")
    return known[dtype]


def num_bytes(shapes: Mapping[str, Shape], dtype: torch.dtype, quantization: Quantization = "none") -> int:
    """Bytes of all tensors of these shapes, once they are arranged in as few bits as was asked for."""
    total = 0
    for name, shape in shapes.items():
        grid = grid_of(name, shape, quantization)
        if grid is None:
            total += torch.Size(shape).numel() * dtype.itemsize
        else:
            total += num_packed_bytes(shape[0], shape[1], grid)
    return total


def grid_of(name: str, shape: Shape, quantization: Quantization) -> Grid | None:
    """How a tensor is rounded to codes; None if it stays as it is.

    Weights of products are rounded, which is nearly all there is to read. Norms, biases, embeddings and
    positions stay: a step reads a row of them. So do convolutions: they see features or pixels, which no
    norm has brought to one size, and are a few hundredths of an encoder.
    """
    if quantization == "none" or len(shape) != 2 or "embed" in name:
        return None
    return HEAD_GRID if name.endswith(("lm_head.weight", "proj_out.weight")) else GRIDS[quantization]


def stored_types(folder: Path) -> dict[str, str]:
    """The types of all tensors that a checkpoint's files say they have, as safetensors calls them. Raises
    ModelLoadError if a file is missing or cannot be read."""
    return {stored.key: stored.dtype for path in _weight_files(folder) for stored in _header(path)}


def read_tensors(
    folder: Path,
    expected: Mapping[str, Shape],
    device: torch.device,
    dtype: torch.dtype,
    *,
    renames: Sequence[tuple[str, str]] = (),
    tied: Mapping[str, str] | None = None,
    quantization: Quantization = "none",
    published: Published | None = None,
    adaptable: bool = False,
    as_numbers: Collection[str] = (),
) -> TensorReader:
    """Check the names and shapes in the files' headers; the tensors are read when they are taken.

    `renames` are (prefix in the file, prefix in `expected`), the first that fits wins. `tied` names copies
    a checkpoint may hold (`lm_head.weight` of `embed_tokens.weight`): one that is there without its
    original stands for it, one beside it stays in the reader. `published` is said by the config of a
    checkpoint in fewer bits, whose weights `as_numbers` become numbers even where products of codes are
    computed. Raises ModelLoadError that names everything missing, unexpected and misshapen at once.
    """
    found: dict[str, Stored] = {}
    for path in _weight_files(folder):
        for stored in _header(path):
            if stored.key.endswith(_UNUSED) or (published is not None and stored.key.endswith(IGNORED)):
                continue
            name = _renamed(stored.key, renames)
            if name in found:
                raise ModelLoadError(f"{folder}: {found[name].key} and {stored.key} are the same tensor")
            found[name] = stored
    allowed = dict(expected)
    for copy, original in (tied or {}).items():
        if copy in found and original not in found:
            found[original] = found.pop(copy)
        elif copy in found:
            allowed[copy] = expected[original]
    packed = find_packed(expected, found, published) if published is not None else {}
    _check(folder, allowed, found, packed)
    if quantization != "none" and any(each.grid is not None for each in packed.values()):
        raise ModelLoadError(
            f"{folder}: its weights are codes of few bits already; quantization {quantization} is for others"
        )
    return TensorReader(
        folder, found, device, dtype, quantization, packed, adaptable=adaptable, as_numbers=as_numbers
    )


def check_finite(tensor: Tensor, what: str) -> None:
    """Raise ModelLoadError if a number is not one: the model would answer, and make no sense."""
    if tensor.numel() and not bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all()):
        raise ModelLoadError(f"{what} holds NaN or infinity as {str(tensor.dtype).removeprefix('torch.')}")


def _renamed(key: str, renames: Sequence[tuple[str, str]]) -> str:
    for old, new in renames:
        if key.startswith(old):
            return new + key.removeprefix(old)
    return key


def _header(path: Path) -> list[Stored]:
    try:
        with safe_open(path, framework="pt") as tensors:
            slices = [(key, tensors.get_slice(key)) for key in tensors.keys()]  # noqa: SIM118 (not a mapping)
            return [Stored(path, key, tuple(each.get_shape()), each.get_dtype()) for key, each in slices]
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise ModelLoadError(f"{path}: not a readable safetensors file ({error})") from error


def _weight_files(folder: Path) -> list[Path]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        other = " (weights in other formats are not read)" if list(folder.glob("*.bin")) else ""
        raise ModelLoadError(f"{folder}: no model.safetensors nor model.safetensors.index.json{other}")
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ModelLoadError(f"{index}: no weight_map")
    names = sorted(set(cast(dict[str, str], weight_map).values()))
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise ModelLoadError(f"{index}: names files outside the folder: {listed(outside)}")
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise ModelLoadError(f"{folder}: missing {listed(absent)}, named by {index.name}")
    return [folder / name for name in names]


def _check(
    folder: Path,
    expected: Mapping[str, Shape],
    found: Mapping[str, Stored],
    packed: Mapping[str, PackedWeight],
) -> None:
    missing, misfits = faults_of(packed)
    missing += [name for name in expected if name not in found and name not in packed]
    unexpected = [name for name in found if name not in expected]
    misshapen = [
        f"{name} is {list(found[name].shape)}, expected {list(shape)}"
        for name, shape in expected.items()
        if name in found and found[name].shape != shape
    ] + misfits
    quantised = [
        f"{name} is {found[name].dtype}"
        for name in expected
        if name in found and found[name].dtype not in _FLOATS
    ]
    faults = [
        f"{len(names)} {kind}: {listed(names)}"
        for kind, names in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("misshapen", misshapen),
            ("not of a floating-point type", quantised),
        )
        if names
    ]
    if faults:
        raise ModelLoadError(f"{folder}: tensors do not fit the config; {'; '.join(faults)}")


def listed(names: Sequence[str]) -> str:
    """The first of many names, and how many more there are."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
