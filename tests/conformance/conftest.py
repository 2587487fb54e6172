"""What every engine is held to: two small models, a tokenizer of bytes, a reference in float64.

Prompts go over several blocks of any engine's cache, and characters over several tokens.
"""

from importlib.util import find_spec

import pytest
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from flowrl.runtime.engine import Request, load
from flowrl.runtime.known_engines import GENERATORS
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.model.weights import weights_of

BOS, EOS = 1, 2
HEADS = {"tied": True, "untied": False}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPTIONS = {"vllm": {"kv_cache_gib": 0.1, "gpu_memory_utilization": 0.3}}
MISSING = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


@pytest.fixture(scope="session")
def tokenizer():
    """Return a tokenizer of one token a byte."""
    special = ["<pad>", "<bos>", "<eos>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*special, *letters])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True) for token in special])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>"
    )


@pytest.fixture(scope="session")
def folders(tmp_path_factory, tokenizer):
    """Return the folders of two Llamas with weights large enough to give odd distributions."""
    made = {}
    for head, tied in HEADS.items():
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=512,
            bos_token_id=BOS,
            eos_token_id=EOS,
            pad_token_id=0,
            tie_word_embeddings=tied,
        )
        model = transformers.LlamaForCausalLM(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.15)
        made[head] = str(tmp_path_factory.mktemp(head))
        model.save_pretrained(made[head])
        tokenizer.save_pretrained(made[head])
    return made


class Reference:
    """A model in float64, run on one whole sequence at a time."""

    def __init__(self, folder: str) -> None:
        self.model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64)
        self.original = {name: x.clone() for name, x in self.weights().items()}

    def weights(self) -> dict[str, torch.Tensor]:
        """Return its weights, aliased."""
        return {name: x.detach() for name, x in weights_of(self.model).items()}

    def reset(self) -> None:
        """Go back to the weights of the folder."""
        for name, own in self.weights().items():
            own.copy_(self.original[name])

    def change(self, seed: int) -> dict[str, torch.Tensor]:
        """Change every weight, and return them in float32, as a trainer has them."""
        draw = torch.Generator().manual_seed(seed)
        for own in self.weights().values():
            own.add_(torch.randn(own.shape, generator=draw, dtype=own.dtype), alpha=0.05)
        return {name: x.float() for name, x in self.weights().items()}

    def logits(self, prompt: list[int], tokens: list[int]) -> torch.Tensor:
        """Return f64[token, vocab], what each token of a completion is drawn from."""
        with torch.no_grad():
            logits = self.model(torch.tensor([[*prompt, *tokens]])).logits[0]
        return logits[len(prompt) - 1 : -1]

    def gap(self, requests, found, temperature: float = 1.0) -> float:
        """Return by how much reported logprobs differ from its own, at most."""
        gaps = [
            (self.logits(request.prompt, one.tokens) / temperature)
            .log_softmax(-1)
            .gather(-1, torch.tensor(one.tokens)[:, None])[:, 0]
            .sub(torch.tensor(one.logprobs, dtype=torch.float64))
            .abs()
            .max()
            for request, group in zip(requests, found, strict=True)
            for one in group
        ]
        return max(gaps).item()


@pytest.fixture(scope="session")
def references(folders):
    """Return the reference of each model."""
    return {head: Reference(folder) for head, folder in folders.items()}


@pytest.fixture(scope="session")
def started(folders, tokenizer):
    """Return what starts an engine on a model, once in a session."""
    made = {}

    def start(engine: str, head: str):
        if (engine, head) not in made:
            spec, options = ModelSpec(folders[head], device=DEVICE), OPTIONS.get(engine, {})
            made[engine, head] = load("generate", engine)(spec, tokenizer, **options)
        return made[engine, head]

    return start


@pytest.fixture(params=HEADS)
def head(request):
    """Return which of the models."""
    return request.param


@pytest.fixture
def reference(references, head):
    """Return the model in float64, as it is in its folder."""
    references[head].reset()
    return references[head]


@pytest.fixture(params=[pytest.param(n, marks=MISSING if n == "vllm" else ()) for n in GENERATORS])
def generator(request, started, reference, head):
    """Return an engine that has the weights of its folder."""
    engine = started(request.param, head)
    engine.load({name: x.float() for name, x in reference.weights().items()}, version=0)
    return engine


@pytest.fixture(scope="session")
def requests():
    """Return a short prompt, one of a token, and two of many blocks that begin alike."""
    draw = torch.Generator().manual_seed(5)
    long = [BOS, *torch.randint(3, 259, (300,), generator=draw).tolist()]
    return [
        Request([BOS, 70, 80, 90, 100], seed=10, n=3),
        Request([BOS], seed=2**40, n=1),
        Request(long, seed=30, n=2),
        Request([*long[:290], 40, 41], seed=50, n=1),
    ]
