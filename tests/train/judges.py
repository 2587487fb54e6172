"""Reward models for runs: tiny ones, with a tokenizer that is not the policy's."""

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    pipeline,
)

SPECIAL = ["<unknown>", "<s>", "</s>"]
TURNS = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}"


def merging_tokenizer(**given):
    """Return a tokenizer of bytes with merges, which puts `<s>` and `</s>` around a text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(initial_alphabet=alphabet, vocab_size=300, show_progress=False)
    made.train_from_iterator(["a0: b1:c2: ad e.f=g+ h3:.+= 64 38 75:z yx"], trainer)
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    ids = [(token, made.token_to_id(token)) for token in SPECIAL]
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="</s>", **given
    )


def make_judge(folder, tokenizer, *, labels=1, padding=None, seed=1):
    """Write a reward model with weights large enough to tell texts apart."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"pad_token_id": padding, "bos_token_id": None, "eos_token_id": None}
    config = LlamaConfig(
        vocab_size=len(tokenizer), intermediate_size=24, num_labels=labels, **sizes, **ids
    )
    made = LlamaForSequenceClassification(config)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def piped(folder, texts, **how):
    """Return what transformers' own pipeline says of texts."""
    run = pipeline("text-classification", model=str(folder), tokenizer=str(folder))
    return [found["score"] for found in run(texts, function_to_apply="none", **how)]
