"""Make a workload's model, of random weights, with a tokenizer, and its prompts.

    python make.py WORK.json

Every token but four is one character, so that text and tokens say the same: prompts are drawn as
tokens, and whatever is sampled can be read back.
"""

import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from work import Work

from flowrl.compiler.shapes.known import KNOWN

SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
TINY = {
    **KNOWN["qwen2.5-1.5b"],
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "vocab_size": 512,
}
SHAPES: Mapping[str, Mapping[str, Any]] = {**KNOWN, "tiny": TINY}
CHARACTERS = (*range(33, 127), *range(0x3400, 0xD800), *range(0xE000, 0x40000))
"""Code points of characters; neither spaces nor surrogates."""


def vocabulary(size: int) -> list[str]:
    """Return the tokens, in the order of their ids."""
    return [*SPECIAL, *map(chr, CHARACTERS[: size - len(SPECIAL)])]


def tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of characters.

    It names no end of sequence, so that nothing but the most tokens ends a sample. transformers'
    `AutoTokenizer` takes another class beside the config.json of a Qwen2: name this one.
    """
    ids = {token: i for i, token in enumerate(vocabulary(size))}
    made = Tokenizer(models.BPE(vocab=ids, merges=[], unk_token="<unk>"))
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", pad_token="<pad>", padding_side="left"
    )


def make_model(folder: Path) -> None:
    """Write a model of random weights, in bfloat16, of the sizes that its folder names."""
    sizes = dict(SHAPES[folder.name])
    kind, size = sizes.pop("model_type"), sizes["vocab_size"]
    config = AutoConfig.for_model(
        kind, **sizes, bos_token_id=1, eos_token_id=2, pad_token_id=3, max_position_embeddings=4096
    )
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer(size).save_pretrained(folder)


def make_prompts(work: Work) -> None:
    """Write the prompts of all steps, each of as many tokens as it is to have."""
    size = SHAPES[Path(work.model).name]["vocab_size"]
    words, draw = vocabulary(size)[len(SPECIAL) :], random.Random(0)
    count = work.prompts * work.steps
    texts = ["".join(draw.choices(words, k=work.prompt_tokens)) for _ in range(count)]
    read = PreTrainedTokenizerFast.from_pretrained(work.model)
    assert len(read(texts[0])["input_ids"]) == work.prompt_tokens
    lines = (json.dumps({"prompt": text}) + "\n" for text in texts)
    Path(work.data).write_text("".join(lines))


def main(work: Work) -> None:
    """Make what is missing."""
    folder = Path(work.model)
    if not (folder / "tokenizer_config.json").exists():
        make_model(folder)
    make_prompts(work)


if __name__ == "__main__":
    main(Work.load(sys.argv[1]))
