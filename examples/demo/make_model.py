"""Write an untrained Llama of 1.8 M parameters with a tokenizer of characters.

    python make_model.py FOLDER SEED

The vocabulary has 101 tokens: 4 special ones, 96 characters, and the task's fixed sentence as
one token, which keeps a prompt at 7 to 10 tokens instead of 54 and more.
"""

import string
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
CHARACTERS = sorted(string.ascii_letters + string.digits + string.punctuation + " \n")
SENTENCE = "Spell this word backward (example: sun -> nus): "


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of characters that puts `<bos>` first.

    A BPE without merges is one token a character, and `Fuse` joins them without spaces, so
    encoding and decoding round-trip exactly.
    """
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *CHARACTERS])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(SENTENCE, special=False, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", vocabulary["<bos>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return a Llama with random weights."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def main(folder: Path, seed: int) -> None:
    """Write config.json, model.safetensors and the tokenizer's files."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer()
    make_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {Path(sys.argv[0]).name} FOLDER SEED")
    main(Path(sys.argv[1]), int(sys.argv[2]))
