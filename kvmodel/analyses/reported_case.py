"""What a report of an observed KV cache says: model, precision, layout, settings — from its fields, else its prose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvmodel.analyses.size import parallel_of, with_precision
from kvmodel.engines import Parallel
from kvmodel.engines.engine import version_number
from kvmodel.engines.sglang import Sglang
from kvmodel.engines.vllm import TOKENS_BY_CONCURRENCY, Vllm
from kvmodel.errors import KvmodelError
from kvmodel.presets import catalogue
from kvmodel.system.config_json import read_config, read_config_file
from kvmodel.system.llm import Llm

ENGINE_NAMES = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llamacpp", "tensorrt-llm": "tensorrt-llm"}
_NO_ENGINE_RULES = ("vllm (fork)",)


class UnknownCaseError(KvmodelError):
    """The report leaves out something without which there is no prediction; it says what."""


@dataclass(frozen=True)
class Reported:
    """A case, read."""

    case: Mapping[str, Any]
    llm: Llm
    engine: str
    parallel: Parallel
    memory: float | None
    rounding: float
    tokens: int | None
    block: int | None
    max_model_len: int | None
    slots: int
    state_dtype: str
    speculative_tokens: int
    prefix_caching: str
    batched_tokens: int | None

    @property
    def about(self) -> bool:
        """The source itself calls its figures approximate."""
        return bool(self.case.get("approximate"))

    @property
    def windowed(self) -> bool:
        """Windows beside or instead of full layers, for which a batch limit matters."""
        return any(group.kind in ("sliding_window", "chunked", "compressed") for group in self.llm.attention)

    @property
    def patched(self) -> bool:
        """A build other than a release."""
        return bool(re.search(r"patched|overlay|fork", str(self.case.get("engine_version", ""))))

    @property
    def batch_decides_tokens(self) -> bool:
        """Printed tokens are concurrency × length, so what a window reserves for a batch counts."""
        return version_number(str(self.case.get("engine_version", "")), (0, 33, 0)) >= TOKENS_BY_CONCURRENCY

    @property
    def hybrid_count(self) -> bool:
        """The printed tokens follow from blocks of several groups, so only the exact count is right."""
        kinds = {group.kind for group in self.llm.attention if group.kind not in ("indexer", "shared")}
        return self.engine == "vllm" and len(kinds) > 1

    @property
    def several_ranks(self) -> bool:
        return self.parallel.tp * self.parallel.pp > 1

    def vllm(self) -> Vllm:
        """vLLM with the settings of the report."""
        settings: dict[str, Any] = {
            "version": str(self.case.get("engine_version", "")),
            "speculative_tokens": self.speculative_tokens,
            "prefix_caching": self.prefix_caching,
        }
        raised = any(
            group.kind not in ("full", "latent", "indexer", "sliding_window", "chunked") for group in self.llm.attention
        )
        if self.block and not raised:  # beside states, the printed block is a result, not a setting
            settings["block_tokens"] = self.block
        if self.batched_tokens:
            settings["max_batched_tokens"] = self.batched_tokens
        return Vllm(**settings)

    def sglang(self) -> Sglang:
        """SGLang with the settings of the report."""
        return Sglang(
            version=str(self.case.get("engine_version", "")),
            block_tokens=self.block,
            speculative_tokens=self.speculative_tokens,
        )


def reported(case: Mapping[str, Any], configs: Path) -> Reported:
    """Read a case. Raises UnknownCaseError naming what is missing or not known."""
    note = f"{case.get('note') or ''}"
    engine = str(case.get("engine", ""))
    if engine in _NO_ENGINE_RULES:
        raise UnknownCaseError(f"{engine}: a fork whose layout is not known")
    dtype, state_dtype = _dtypes(str(case.get("kv_dtype") or "bf16"))
    llm = with_precision(_model(case, configs), kv_dtype=dtype)
    memory = case.get("available_kv_bytes")
    return Reported(
        case,
        llm,
        ENGINE_NAMES.get(engine, "logical"),
        parallel_of(case.get("tp") or 1, case.get("pp") or 1, case.get("dcp") or 1, case.get("dp_attention") or 1),
        None if memory is None else float(memory),
        float(case.get("available_is_rounded_to_bytes") or 0.0),
        case.get("tokens"),
        case.get("block_size"),
        case.get("max_model_len") or _written_length(note),
        int(case.get("slots") or 1),
        state_dtype,
        _draft_tokens(case, note),
        _state_mode(case, note),
        case.get("max_num_batched_tokens") or _batched_tokens(note),
    )


def _dtypes(text: str) -> tuple[str | None, str]:
    """(cache type, state type) of texts such as "fp8 (656-byte row)" or "f32 state"."""
    if any(word in text for word in ("mix", "nvfp4_ds_mla")):
        raise UnknownCaseError(f"cache type {text!r} is not one known layout")
    word = text.split()[0]
    return (None, word) if text.endswith("state") else (word, "")


def _model(case: Mapping[str, Any], configs: Path) -> Llm:
    """From the config.json named or given, a preset of the model's name, or the shape the report states."""
    if isinstance(case.get("config"), Mapping):
        return read_config(case["config"])
    if case.get("config_file"):
        return read_config_file(configs / str(case["config_file"]))
    words = re.sub(r"\(.*?\)", "", str(case.get("model", ""))).strip().split("/")[-1].strip().lower()
    known = catalogue.names("llms")
    name = words if words in known else next((name for name in known if _geometry(name) == _geometry(words)), None)
    if name is not None:
        return Llm(**catalogue.load("llms", name).fields)
    if (shape := _stated_shape(f"{case.get('model')} {case.get('note')}")) is not None:
        return shape
    raise UnknownCaseError(f"no config.json, preset or stated shape for {case.get('model')!r}")


_SAME_GEOMETRY = re.compile(
    r"meta|nvidia|hf|instruct|it|chat|base|thinking|preview|qat|gguf|bf16|fp8|fp4|nvfp4|mxfp4|int4|int8|awq|gptq|bnb|dynamic|"
    r"[48]bit|w\da\d+|q\d(_\w+)?|\d{4}"
)


def _geometry(name: str) -> tuple[str, ...]:
    """Words of a model's name without those that change neither layers nor heads: tuning, weight format, date."""
    return tuple(word for word in re.split(r"[-\s]+", name.lower()) if word and not _SAME_GEOMETRY.fullmatch(word))


def _stated_shape(text: str) -> Llm | None:
    """A model of equal full layers from prose such as "28 layers, 8 KV heads, head_dim 128"."""
    found = re.search(r"(\d+) layers?(?:,| x) (\d+) (?:KV )?heads?(?:, head_dim| x) (\d+)", text)
    if found:
        layers, heads, width = map(int, found.groups())
    elif found := re.search(r"(\d+) layers?, n_embd_k_gqa (\d+)", text):
        layers, heads, width = int(found[1]), 1, int(found[2])
    else:
        return None
    group = {"kind": "full", "layers": layers, "kv_heads": heads, "k_dim": width, "v_dim": width}
    return Llm(name="stated shape", attention=[group], max_context=131_072)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _draft_tokens(case: Mapping[str, Any], note: str) -> int:
    if (given := case.get("speculative_tokens")) is not None:
        return int(given)
    found = re.search(r"MTP (?:n=|depth |draft )?(\d+)", note) or re.search(r"(\d+) (?:speculative|draft) tokens", note)
    return int(found[1]) if found and int(found[1]) < 100 else 0


def _state_mode(case: Mapping[str, Any], note: str) -> str:
    if given := case.get("prefix_caching"):
        return str(given)
    return (
        "align"
        if re.search(r"\balign(?:ed)?\b(?: state)? mode", note)
        and not re.search(
            r"no [\w-]+ ?align|no "
            r"align",
            note,
        )
        else "none"
    )


def _batched_tokens(note: str) -> int | None:
    found = re.search(r"max_num_batched_tokens(?: of| =|=)? ?([\d,]+)", note) or re.search(
        r"([\d,]+) batch tokens", note
    )
    return _number(found[1]) if found else None


def _written_length(note: str) -> int | None:
    found = re.search(r"max_model_len ([\d,]+\d)", note)
    return _number(found[1]) if found else None
