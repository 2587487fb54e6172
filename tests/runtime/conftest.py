"""Tiny random models and a tokenizer of characters, shared by the runtime's tests."""

import string

import pytest
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models

from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Sequences

VOCAB = 64
SIZES = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
GATED = {"intermediate_size": 24, "num_key_value_heads": 1, "max_position_embeddings": 64}
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, **GATED, **IDS, tie_word_embeddings=True),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES, **GATED, **IDS),
    "gemma2": lambda: transformers.Gemma2Config(
        **SIZES, **GATED, **IDS, head_dim=8, sliding_window=4, final_logit_softcapping=2.0
    ),
    "granite": lambda: transformers.GraniteConfig(**SIZES, **GATED, **IDS, logits_scaling=4.0),
    "bloom": lambda: transformers.BloomConfig(
        vocab_size=VOCAB, hidden_size=16, n_layer=2, n_head=2, **IDS
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(
        **SIZES, **IDS, intermediate_size=24, max_position_embeddings=64
    ),
    "opt": lambda: transformers.OPTConfig(
        **SIZES, **IDS, ffn_dim=24, max_position_embeddings=64, word_embed_proj_dim=16
    ),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCAB,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=64,
        **(IDS | {"pad_token_id": None}),
    ),
}

CLASSIFIERS = {
    "tokens": transformers.AutoModelForTokenClassification,
    "sequences": transformers.AutoModelForSequenceClassification,
}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """Return the folder of a tiny model with weights large enough to give odd distributions."""
    made = {}

    def folder(name: str) -> str:
        if name not in made:
            torch.manual_seed(0)
            model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name]())
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
            made[name] = str(tmp_path_factory.mktemp(name))
            model.save_pretrained(made[name])
        return made[name]

    return folder


@pytest.fixture(scope="session")
def classifier_folder(tmp_path_factory):
    """Return the folder of a tiny classifier with one label: of "tokens", or of "sequences"."""
    made = {}

    def folder(name: str, of: str) -> str:
        if (name, of) not in made:
            torch.manual_seed(1)
            config = CONFIGS[name]()
            config.num_labels = 1
            model = CLASSIFIERS[of].from_config(config)
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
            made[name, of] = str(tmp_path_factory.mktemp(f"{name}-{of}"))
            model.save_pretrained(made[name, of])
        return made[name, of]

    return folder


@pytest.fixture(scope="session")
def tokenizer():
    """Return a tokenizer of one token a character; its ids are the models'."""
    special = ["<pad>", "<bos>", "<eos>"]
    letters = string.ascii_letters + " .,=+-\n!?"
    vocab = {token: number for number, token in enumerate([*special, *letters])}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.decoder = decoders.Fuse()
    made.add_special_tokens([AddedToken(token, special=True) for token in special])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    )


@pytest.fixture
def batch():
    """Return seven ragged rows; one has no response, one response is a single token."""
    lengths = [(3, 5), (1, 4), (9, 1), (2, 0), (5, 5), (1, 8), (4, 2)]
    draw = torch.Generator().manual_seed(1)
    rows = [
        [torch.randint(3, VOCAB, (length,), generator=draw) for length in pair] for pair in lengths
    ]
    contexts, tokens = zip(*rows, strict=True)
    return Sequences(Ragged.of_rows(contexts, torch.int64), Ragged.of_rows(tokens, torch.int64))
