"""The fields of a config.json, read with names in every complaint and with a record of which ones were read.

Fields that announce a kind of layer (a latent rank, a state size, a window …) and that no reader looked at
mean the file says more than we understood: the model is then refused, because a plain formula would be
silently wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvmodel.errors import UnsupportedModelError

# field -> the kind of layer it announces when it is set
ANNOUNCING_FIELDS = {
    "kv_lora_rank": "latent attention",
    "q_lora_rank": "latent attention",
    "index_head_dim": "an indexer",
    "index_topk": "an indexer",
    "sparse_attention_config": "an indexer",
    "indexer_types": "an indexer",
    "compress_ratios": "compressed attention",
    "linear_num_value_heads": "a gated delta net",
    "linear_attn_config": "linear attention",
    "full_attention_interval": "linear attention",
    "attn_type_list": "linear attention",
    "mamba_d_state": "a Mamba state",
    "mamba_num_heads": "a Mamba state",
    "ssm_state_size": "a Mamba state",
    "state_size": "a Mamba state",
    "conv_L_cache": "a short convolution",
    "hybrid_override_pattern": "Mamba layers",
    "layers_block_type": "Mamba layers",
    "attn_layer_period": "Mamba layers",
    "attn_layer_indices": "Mamba layers",
    "sliding_window": "a sliding window",
    "layer_types": "several kinds of layer",
    "hybrid_layer_pattern": "a sliding window",
    "sliding_window_pattern": "a sliding window",
    "attention_chunk_size": "chunked attention",
    "cross_attention_layers": "cross attention",
    "num_kv_shared_layers": "layers that share a cache",
    "block_configs": "layers of different shape",
    "num_global_key_value_heads": "full layers of another shape",
    "global_head_dim": "full layers of another shape",
    "attention_other_setting": "windowed layers of another shape",
    "use_cla": "layers that share a cache",
    "is_encoder_decoder": "cross attention",
    "attention_types": "a sliding window",
    "layer_group_size": "linear attention",
    "attention_window_size": "a sliding window",
    "block_types": "several kinds of layer",
    "hybrid_layer_ids": "Mamba layers",
    "kv_source_layers": "a shared cache",
    "sparse_config": "block-sparse attention",
    "linear_num_heads": "linear attention",
    "compress_rates": "compressed attention",
    "per_layer_config": "layers of different shape",
    "lru_width": "a recurrent state",
    "cca_time0": "convolved keys and values",
    "conv_kernel_size": "a convolution state",
}


LARGEST = 1e12  # no count or width of a model comes near
MOST_LAYERS = 10_000


class Fields:
    """Read access to the (text part of a) config.json."""

    def __init__(self, values: Mapping[str, Any], model_type: str):
        self._values = values
        self.model_type = model_type
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def refuse(self, reason: str) -> UnsupportedModelError:
        """The error to raise, with the architecture named."""
        return UnsupportedModelError(f"{self.model_type}: {reason}")

    def get(self, *names: str, default: Any = None) -> Any:
        """First of the names that is set, in the order given."""
        self._read.update(names)
        for name in names:
            if self._values.get(name) is not None:
                return self._values[name]
        return default

    def ignore(self, *names: str) -> None:
        """Fields that were considered and say nothing about the cache here."""
        self._read.update(names)

    def whole(self, *names: str, default: int | None = None, least: int = 1, most: float = LARGEST) -> int:
        """A whole number from `least` to `most`; a missing field without default is refused by name."""
        value = self.get(*names, default=default)
        label = " / ".join(names)
        if value is None:
            raise self.refuse(f"field {label} is missing")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not least <= value <= most or value != int(value):
            bounds = f"at least {least}" + (f" and at most {most:,}" if most < LARGEST else "")
            raise self.refuse(f"field {label} must be a whole number of {bounds}, found {value!r:.80}")
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        value = self.get(name, default=default)
        if not isinstance(value, (bool, int)):
            raise self.refuse(f"field {name} must be true or false, found {value!r}")
        return bool(value)

    def listing(self, name: str, length: int | None = None, extra: bool = False) -> list[Any] | None:
        """A list of one entry per layer, or None when absent. `extra`: entries of draft layers may follow."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self.refuse(f"field {name} must be a list, found {value!r}")
        if length is not None and (len(value) < length or (len(value) > length and not extra)):
            raise self.refuse(f"field {name} has {len(value)} entries but num_hidden_layers is {length}")
        return list(value[:length])

    def nested(self, name: str) -> Fields:
        """The fields of a mapping inside this one."""
        value = self.get(name, default={})
        if not isinstance(value, Mapping):
            raise self.refuse(f"field {name} must be a mapping, found {value!r}")
        return Fields(value, f"{self.model_type}.{name}")

    def check_all_read(self) -> None:
        """Refuse when a set field announces layers that no reader looked at."""
        for name, announced in ANNOUNCING_FIELDS.items():
            if self._values.get(name) not in (None, False, 0, [], {}, "") and name not in self._read:
                raise self.refuse(f"field {name} announces {announced}, which this architecture is not known to have")
