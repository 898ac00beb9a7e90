"""How each architecture's config.json says which layers it has. A new one is a reader (or a name) in this
table.

A reader takes the text fields and returns, per layer, the records of what that layer stores (none: no cache).
"""

from __future__ import annotations

from collections.abc import Callable

from kvmodel.system.architectures.encoders import read_bart, read_mllama, read_t5
from kvmodel.system.architectures.fields import Fields
from kvmodel.system.architectures.heads import (
    Layer,
    read_block_configs,
    read_decoder,
    read_gemma,
    read_gpt_neo,
    read_hunyuan,
    read_llama4,
    read_mimo_v2,
    read_minimax_m3,
)
from kvmodel.system.architectures.latents import read_compressed, read_latent, read_longcat
from kvmodel.system.architectures.states import (
    read_delta_net,
    read_falcon_h1,
    read_jamba,
    read_kimi,
    read_lfm2,
    read_mamba1,
    read_mamba2,
    read_mamba_hybrid,
    read_mamba_ssm,
    read_minimax,
    read_nemotron_h,
    read_recurrent_gemma,
    read_zamba,
)

Reader = Callable[[Fields], list[list[Layer]]]

_NAMES: dict[Reader, str] = {
    read_decoder: """
        llama mistral mixtral ministral ministral3 qwen2 qwen2_moe qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text
        qwen2_audio qwen2_5_omni_text qwen3 qwen3_moe qwen3_vl_text qwen3_vl_moe_text qwen3_omni_moe_text qwen gemma
        gemma2 gemma3_text phi phi3 phimoe phi4mm starcoder2 gpt_bigcode gpt2 gptj gpt_neox gpt_oss codegen opt bloom
        falcon mpt dbrx olmo olmo2 olmo3 olmoe cohere cohere2 granite granitemoe granitemoeshared stablelm persimmon
        exaone exaone4 exaone_moe glm glm4 glm4_moe glm4v_text glm4v_moe_text chatglm internlm internlm2 internlm3
        baichuan yi minicpm smollm3 seed_oss ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text nemotron arctic grok-1 jais
        xverse orion aquila deepseek dots1 bailing_moe bailing_moe_v2 arcee apertus apertus1p5_text helium mimo
        step3_text step3p5 step3p7 afmoe aria_text bitnet biogpt cohere2_moe cwm deepseek_ocr2_text diffllama
        flex_olmo glm_ocr_text gpt_neox_japanese granite_swa granitemoe_swa hy_v3 hyperclovax iquestcoder jais2 jetmoe
        laguna mellum molmo2_text muse_glimmer_text muse_spark_text nanochat paddleocr_vl_text phi4_multimodal
        sarvam_moe solar_open vaultgemma voxtral_realtime_text
    """,
    read_hunyuan: "hunyuan hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text",
    read_gemma: "gemma3n_text gemma4_text gemma4_unified_text",
    read_llama4: "llama4_text",
    read_mimo_v2: "mimo_v2_flash mimo_v2",
    read_gpt_neo: "gpt_neo",
    read_block_configs: "nemotron-nas",
    read_minimax_m3: "minimax_m3 minimax_m3_text",
    read_latent: """
        deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 glm_moe_dsa glm4_moe_lite youtu_llm axk1 axk2 hy_v4
        minicpm3 mistral4 mistral_large4_text sarvam_mla
    """,
    read_longcat: "longcat_flash",
    read_compressed: "deepseek_v4",
    read_delta_net: "qwen3_next qwen3_5_text qwen3_5_moe_text qwen3_8_text qwen3_8_moe_text olmo_hybrid",
    read_kimi: "kimi_linear glm5_next_text bailing_hybrid",
    read_minimax: "minimax_m1 minimax_m2 minimax_text_01 minimax",
    read_nemotron_h: "nemotron_h",
    read_mamba_hybrid: "granitemoehybrid bamba",
    read_jamba: "jamba",
    read_falcon_h1: "falcon_h1",
    read_mamba1: "mamba falcon_mamba",
    read_mamba2: "mamba2",
    read_mamba_ssm: "mamba_ssm",
    read_lfm2: "lfm2 lfm2_moe lfm3",
    read_zamba: "zamba zamba2",
    read_recurrent_gemma: "recurrent_gemma",
    read_t5: "t5 mt5 umt5",
    read_bart: "whisper bart mbart pegasus marian m2m_100 blenderbot",
    read_mllama: "mllama_text_model",
}
READERS: dict[str, Reader] = {name: reader for reader, names in _NAMES.items() for name in names.split()}

__all__ = ["READERS", "Fields", "Layer", "Reader"]
