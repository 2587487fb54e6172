"""Tiny models of the families that ranks divide: 4 heads, 2 of keys and values, 63 tokens."""

import torch
import transformers as t

SIZES = {
    "vocab_size": 63,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
KEYS = SIZES | {"num_key_value_heads": 2}
HEADS = KEYS | {"head_dim": 8}
BIASED = {"attention_bias": True, "mlp_bias": True}
FAMILIES = {
    "llama": lambda: t.LlamaConfig(**KEYS, **BIASED, tie_word_embeddings=True),
    "mistral": lambda: t.MistralConfig(**KEYS),
    "qwen2": lambda: t.Qwen2Config(**KEYS),
    "qwen3": lambda: t.Qwen3Config(**HEADS),
    "gemma": lambda: t.GemmaConfig(**HEADS),
    "gemma2": lambda: t.Gemma2Config(**HEADS, sliding_window=4, final_logit_softcapping=2.0),
    "gemma3_text": lambda: t.Gemma3TextConfig(**HEADS, sliding_window=4),
    "phi3": lambda: t.Phi3Config(**KEYS),
    "gpt_neox": lambda: t.GPTNeoXConfig(**SIZES),
    "granite": lambda: t.GraniteConfig(**KEYS, logits_scaling=4.0),
}


def model_of(config):
    """Return a random model with weights large enough to give odd distributions."""
    torch.manual_seed(0)
    model = t.AutoModelForCausalLM.from_config(config).requires_grad_(False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def save(config, folder):
    """Save a random model; return its folder."""
    model_of(config).save_pretrained(folder)
    return str(folder)
