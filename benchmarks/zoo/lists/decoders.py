"""Language models that continue a text."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.entry import Entry, Input, ids, open_ids

VOCABULARY = 4000
USUAL: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "use_cache": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
"""Names of sizes that most configurations share; some have others."""


def _decoder(name: str, kind: str, sample: bool = False, inputs: tuple[Input, ...] = (), **config: Any) -> Entry:
    """A causal language model over 64 tokens, with a head over the vocabulary."""
    return Entry(name, "decoders", "transformers", f"{kind}ForCausalLM", inputs or (ids(64, VOCABULARY),),
                 {**USUAL, **config}, sample)  # fmt: skip


def _older(name: str, kind: str, **config: Any) -> Entry:
    """As :func:`_decoder`, with the names of sizes that GPT-2 uses."""
    sizes = {"vocab_size": VOCABULARY, "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 256,
             "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    return Entry(name, "decoders", "transformers", kind, (ids(64, VOCABULARY),), {**sizes, **config})


_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
_ALTERNATING = {"head_dim": 64, "sliding_window": 16}

DECODERS = (
    _decoder("llama", "Llama", sample=True),
    _decoder("llama-open", "Llama", inputs=(open_ids(64, VOCABULARY),)),
    _decoder("llama-128k", "Llama", vocab_size=128000, num_hidden_layers=1),
    _decoder("mistral", "Mistral", sliding_window=16, head_dim=64),
    _decoder("qwen2", "Qwen2", inputs=(open_ids(64, VOCABULARY),)),
    _decoder("qwen3", "Qwen3", head_dim=64),
    _decoder("gemma", "Gemma", head_dim=64),
    _decoder("gemma2", "Gemma2", query_pre_attn_scalar=64, **_ALTERNATING),
    _decoder("gemma3", "Gemma3", query_pre_attn_scalar=64, **_ALTERNATING),
    _decoder("phi", "Phi", num_key_value_heads=4),
    _decoder("phi3", "Phi3"),
    _decoder("olmo", "Olmo"),
    _decoder("olmo2", "Olmo2"),
    _decoder("stablelm", "StableLm"),
    _decoder("starcoder2", "Starcoder2"),
    _decoder("cohere", "Cohere"),
    _decoder("granite", "Granite"),
    _decoder("smollm3", "SmolLM3"),
    _decoder("nemotron", "Nemotron"),
    _decoder("persimmon", "Persimmon", num_key_value_heads=4),
    _decoder("glm", "Glm", head_dim=64),
    _decoder("mixtral", "Mixtral", sample=True, num_local_experts=4, num_experts_per_tok=2),
    _decoder("qwen2-moe", "Qwen2Moe", shared_expert_intermediate_size=256, **_EXPERTS),
    _decoder("qwen3-moe", "Qwen3Moe", head_dim=64, **_EXPERTS),
    _decoder("olmoe", "Olmoe", num_experts=4, num_experts_per_tok=2),
    _decoder("deepseek-v3", "DeepseekV3", num_key_value_heads=4, kv_lora_rank=64, q_lora_rank=96, qk_rope_head_dim=16,
             qk_nope_head_dim=48, v_head_dim=64, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2,
             moe_intermediate_size=128, first_k_dense_replace=1, n_group=1, topk_group=1),
    _decoder("gpt-neox", "GPTNeoX", inputs=(open_ids(64, VOCABULARY),)),
    _decoder("opt", "OPT", ffn_dim=688, word_embed_proj_dim=256),
    _decoder("bloom", "Bloom", n_head=4, n_layer=2),
    _decoder("falcon", "Falcon", multi_query=True),
    _decoder("falcon-alibi", "Falcon", alibi=True, multi_query=False, new_decoder_architecture=False),
    _decoder("mpt", "Mpt", d_model=256, n_heads=4, n_layers=2, max_seq_len=256),
    _decoder("gpt-neo", "GPTNeo", num_layers=2, num_heads=4, window_size=16,
             attention_types=[[["global", "local"], 1]]),
    _decoder("xglm", "XGLM", d_model=256, num_layers=2, attention_heads=4, ffn_dim=512),
    _decoder("biogpt", "BioGpt"),
    _older("gpt-j", "GPTJForCausalLM", rotary_dim=32),
    _older("codegen", "CodeGenForCausalLM", rotary_dim=32),
    _older("gpt-bigcode", "GPTBigCodeForCausalLM"),
    _older("openai-gpt", "OpenAIGPTLMHeadModel"),
    _older("ctrl", "CTRLLMHeadModel", dff=512),
    _decoder("mamba", "Mamba", sample=True, state_size=16),
    _decoder("mamba-open", "Mamba", inputs=(open_ids(64, VOCABULARY),), state_size=16),
    _decoder("mamba2", "Mamba2", state_size=32, num_heads=8, head_dim=64, n_groups=1, chunk_size=32),
    _decoder("falcon-mamba", "FalconMamba", state_size=16),
    _decoder("rwkv", "Rwkv", attention_hidden_size=256, context_length=256),
    _decoder("recurrent-gemma", "RecurrentGemma", num_hidden_layers=3, lru_width=256, attention_window_size=32,
             head_dim=64),
)  # fmt: skip
