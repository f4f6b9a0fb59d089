"""Small configurations of models in Hugging Face transformers, with weights drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Example = tuple[nn.Module, Any]

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 40,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}


def words(length: int = 6) -> dict[str, Any]:
    return {"input_ids": torch.randint(1, 40, (4, length), generator=torch.Generator().manual_seed(0))}


def gpt2() -> Example:
    import transformers as t

    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 40, "bos_token_id": 0, "eos_token_id": 0}
    return t.GPT2LMHeadModel(t.GPT2Config(**sizes)), words()


def llama() -> Example:
    import transformers as t

    return t.LlamaForCausalLM(t.LlamaConfig(**GROUPED)), words()


def qwen3() -> Example:
    import transformers as t

    return t.Qwen3ForCausalLM(t.Qwen3Config(**GROUPED, head_dim=4)), words()


def gemma2() -> Example:
    import transformers as t

    return t.Gemma2ForCausalLM(t.Gemma2Config(**GROUPED, head_dim=4, attn_implementation="eager")), words()


def bert() -> Example:
    import transformers as t

    return t.BertForMaskedLM(t.BertConfig(**SIZES)), words()


def t5() -> Example:
    import transformers as t

    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "vocab_size": 40}
    config = t.T5Config(**sizes, decoder_start_token_id=0)
    return t.T5ForConditionalGeneration(config), {**words(), "decoder_input_ids": words(4)["input_ids"]}


def vit() -> Example:
    import transformers as t

    sizes = {k: v for k, v in SIZES.items() if k != "vocab_size"}
    config = t.ViTConfig(**sizes, image_size=16, patch_size=4)
    return t.ViTForImageClassification(config), {"pixel_values": torch.randn(4, 3, 16, 16)}


def mixtral() -> Example:
    import transformers as t

    return t.MixtralForCausalLM(t.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2)), words(16)


def deepseek() -> Example:
    import transformers as t

    latent = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4}
    experts = {
        "n_routed_experts": 8,
        "n_group": 2,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
    }
    config = t.DeepseekV3Config(**SIZES, **latent, **experts, num_key_value_heads=4, first_k_dense_replace=1)
    return t.DeepseekV3ForCausalLM(config), words(16)


def mamba() -> Example:
    import transformers as t

    t.logging.set_verbosity_error()  # kernels that are not installed
    config = t.MambaConfig(hidden_size=16, num_hidden_layers=2, vocab_size=40, state_size=4)
    return t.MambaForCausalLM(config), words(3)


def whisper() -> Example:
    import transformers as t

    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 40, "num_mel_bins": 8}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = t.WhisperConfig(**sizes, **heads, **tokens, max_source_positions=12, max_target_positions=8)
    sound = torch.randn(4, 8, 24, generator=torch.Generator().manual_seed(0))
    return t.WhisperForConditionalGeneration(config), {
        "input_features": sound,
        "decoder_input_ids": words(4)["input_ids"],
    }


EXAMPLES: dict[str, Callable[[], Example]] = {
    "GPT-2": gpt2,
    "Llama": llama,
    "Qwen 3": qwen3,
    "Gemma 2": gemma2,
    "BERT": bert,
    "T5": t5,
    "ViT": vit,
    "Mixtral": mixtral,
    "DeepSeek-V3": deepseek,
    "Mamba": mamba,
    "Whisper": whisper,
}
