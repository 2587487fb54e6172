import string

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, processors
from transformers import PreTrainedTokenizerFast

from flowrl.data.opening import open_data
from flowrl.data.spec import DataSpec

SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>", "<user>", "<assistant>", "<system>"]
CHAT = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}<eos>{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
TAGGED_CHAT = (
    "{% for message in messages %}<{{ message.role }}>{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content }}<eos>{% endgeneration %}"
    "{% else %}{{ message.content }}<eos>{% endif %}{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make_tokenizer(*, bos="prepended", template=None, eos="<eos>"):
    """One token a character. BOS is "prepended", only "known" to the tokenizer, or "none"."""
    characters = sorted(set(string.ascii_letters + string.digits + string.punctuation + " \n"))
    vocabulary = {token: number for number, token in enumerate(SPECIAL + characters)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    made.decoder = decoders.Fuse()
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    if bos == "prepended":
        made.post_processor = processors.TemplateProcessing(
            single="<bos> $A", special_tokens=[("<bos>", vocabulary["<bos>"])]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=None if bos == "none" else "<bos>",
        eos_token=eos,
        pad_token="<pad>",
        unk_token="<unk>",
        chat_template=template,
        model_max_length=8,
    )


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="session")
def chat_tokenizer():
    return make_tokenizer(template=CHAT)


@pytest.fixture
def opened(tmp_path, tokenizer):
    """Open a source in `tmp_path`; keywords are the spec's, but for those named here."""

    def call(source, *, kind="prompts", by=tokenizer, seed=0, needs=None, **keys):
        spec = DataSpec(str(source), **keys)
        return open_data(spec, kind, by, seed=seed, folder=tmp_path, needs=needs or {})

    return call


@pytest.fixture
def written(tmp_path):
    """Write a file into `tmp_path`; return its name."""

    def call(name, content):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return call
