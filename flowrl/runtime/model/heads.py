"""What stands on a model's last layer, and the class of transformers that has it."""

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto import modeling_auto

from flowrl.errors import EngineError
from flowrl.ops.model import Head

CLASSES: Mapping[Head, Any] = {
    "lm": transformers.AutoModelForCausalLM,
    "lm+value": transformers.AutoModelForCausalLM,
    "value": transformers.AutoModelForTokenClassification,
    "token_reward": transformers.AutoModelForTokenClassification,
    "reward": transformers.AutoModelForSequenceClassification,
}
"""The class of a head that is new."""

CLASSIFIERS: Mapping[Any, Mapping[str, str]] = {
    transformers.AutoModelForTokenClassification: (
        modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES
    ),
    transformers.AutoModelForSequenceClassification: (
        modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    ),
}
"""By class, what it is called for each type of model."""


def class_of(config: Any, head: Head, path: str) -> Any:
    """Return the class that loads a folder with a head.

    A classifier with one label has one number at every place, whether it was saved as one of
    tokens or of sequences. So a folder that has such a head keeps it, as it was saved: it is a
    critic, a reward of tokens or of samples. A new head is of the class that is made for it, or of
    the other, if this type of model has no such class.

    Args:
        config: the folder's.
        head: what the role needs.
        path: of the folder, for the message.

    Raises:
        EngineError: transformers has no such model, or classifier, of this type.
    """
    own = CLASSES[head]
    if own not in CLASSIFIERS:
        _check_speaks(config, path)
        return own
    classes = {kind: names.get(config.model_type) for kind, names in CLASSIFIERS.items()}
    known = [kind for kind in (own, *classes) if classes[kind]]
    saved = [kind for kind in known if classes[kind] in (config.architectures or ())]
    for kind in saved + known:
        return kind
    raise EngineError(
        f"`{path}` is of type {config.model_type}, of which transformers has no classifier: "
        f"it can have no {head} head",
        hint='take a model of another type; a policy is its own critic with `head = "lm+value"`',
    )


def _check_speaks(config: Any, path: str) -> None:
    """Refuse a type of model of which transformers has no causal language model."""
    if config.model_type not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise EngineError(
            f"`{path}` is of type {config.model_type}, of which transformers has no causal "
            "language model",
            hint="take a model that predicts the next token, such as one of type llama",
        )


def head_module(model: nn.Module) -> nn.Module:
    """Return the linear layer that maps a hidden state to one number."""
    return model.score if hasattr(model, "score") else model.classifier  # type: ignore[return-value]


def head_names(model: nn.Module) -> set[str]:
    """Return the names of the classification head's parameters."""
    own = {id(parameter) for parameter in head_module(model).parameters()}
    return {name for name, parameter in model.named_parameters() if id(parameter) in own}


def check_classifier(model: nn.Module, path: str) -> None:
    """Refuse a classifier that sees what comes after a token.

    Raises:
        EngineError: it is an encoder.
    """
    if not reads_one_way(model):
        raise EngineError(
            f"`{path}` is a {type(model).__name__}, which attends both ways: its output at a "
            "token would depend on later tokens",
            hint="take a classifier with one label on a causal language model, or call this one "
            "in a reward function",
        )


def reads_one_way(model: nn.Module) -> bool:
    """Whether the states of two tokens have no gradient in a third one that follows."""
    if model.config.is_encoder_decoder:  # type: ignore[union-attr]
        return False
    said = torch.tensor([[1, 2, 3]], device=next(model.parameters()).device)
    read: list[Tensor] = []
    table = model.get_input_embeddings()  # type: ignore[operator]
    hook = table.register_forward_hook(lambda _, __, embedded: read.append(embedded))
    with torch.enable_grad():
        states = model.base_model(said)[0]  # type: ignore[operator]
        (gradient,) = torch.autograd.grad(states[0, :2, 0].sum(), read[0])
    hook.remove()
    return not gradient[0, 2].any()
