"""Language models, critics and reward models: transformers folders with the head a role needs."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import torch
import transformers
from safetensors import SafetensorError
from torch import nn

from flowrl.errors import EngineError
from flowrl.ops.model import Head
from flowrl.runtime.model.folder import FOLDER, check_config, saved_weights
from flowrl.runtime.model.heads import CLASSIFIERS, check_classifier, class_of, head_names
from flowrl.runtime.model.kernels import register
from flowrl.runtime.model.lora import Lora, add_adapter
from flowrl.runtime.model.narrow import narrow_linear
from flowrl.runtime.model.value_head import add_value_head, has_value_head

HUB_NAME = re.compile(r"[\w-]+/[\w.-]+")
HEADS = "give a folder that was saved with such a head, or train the model in the program"
REPORTED = {"output_loading_info": True, "ignore_mismatched_sizes": True}
"""How transformers says what a folder lacks; `check_report` refuses it by name."""

log = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


@attrs.frozen
class ModelSpec:
    """A model to load.

    Attributes:
        path: a folder that transformers' `from_pretrained` loads, or a name on its hub.
        head: what stands on the last layer; None leaves it to the role.
        dtype: of the arithmetic. A trainer in bfloat16 keeps float32 weights.
        device: where it lives, as torch writes it.
        new_head: whether a head of one number that the folder lacks may start at zero, to be
            trained; the numbers of a model that never learns would all be 0.
        lora: the adapters that are trained in place of the model, which is then its base.
        narrow: which weights of a bfloat16 model are bfloat16 where it is run forward: none of what
            learns, whose float32 ones torch's autocast narrows; of what never does, those of linear
            layers, to the same bits; or all, beside a trainer that has an engine's.
    """

    path: str
    head: Head | None = None
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    device: str = "cpu"
    new_head: bool = True
    lora: Lora | None = None
    narrow: Literal["none", "linear", "all"] = "none"


def load_model(
    spec: ModelSpec, head: Head | None = None, dtype: torch.dtype | None = None
) -> nn.Module:
    """Load a model in eval mode (dropout off: a policy's ratio to itself is 1).

    Args:
        spec: what to load.
        head: the head that the role needs, where the spec has none; "lm" if neither says.
        dtype: of the weights, if it is not the spec's.

    Returns:
        A transformers model: for causal language modelling, or for token or sequence
        classification with one label, whichever the folder was saved as. A head of one number
        that the folder lacks starts at zero; beside a language model's own it is the module
        `value_head`. Adapters are float32, whatever their base is; B is zero.

    Raises:
        EngineError: torch finds no such GPU; the folder is missing, is no model, lacks weights
            besides that head (or that head too, without `new_head`), or is no classifier of one
            number at each token.
    """
    head = spec.head or head or "lm"
    check_device(spec)
    kind, config = _asked(spec.path, head)
    try:
        with quiet_transformers():
            model, report = kind.from_pretrained(
                spec.path,
                config=config,
                dtype=dtype or DTYPES[spec.dtype],
                attn_implementation=exact_attention(config),
                **REPORTED,
            )
    except (OSError, ValueError, LookupError, SafetensorError) as error:
        raise no_model(spec.path, error) from error
    if kind in CLASSIFIERS:
        check_classifier(model, spec.path)
    missing = _missing(model, report, kind, spec.path)
    for name in missing:
        nn.init.zeros_(model.get_parameter(name))
    if missing or (head == "lm+value" and not add_value_head(model, Path(spec.path))):
        check_new_head(spec, head)
        log.info("%s has no %s head yet: it starts at zero", spec.path, head.removeprefix("lm+"))
    if dtype == torch.float32 and spec.dtype == "bfloat16" and spec.narrow == "linear":
        narrow_linear(model)
    if spec.lora:
        add_adapter(model, spec.lora)
    return _aligned(model).to(spec.device).eval()


def check_model(spec: ModelSpec, head: Head | None = None) -> Any:
    """Check what `load_model` would load from a folder, as far as no number of it needs be read.

    Args:
        spec: what would be loaded, on whichever device; without its adapter.
        head: as of `load_model`.

    Returns:
        Its config, as transformers has it.

    Raises:
        EngineError: as `load_model`, but for what a forward pass alone would tell.
    """
    head, folder = spec.head or head or "lm", Path(spec.path)
    kind, config = _asked(spec.path, head)
    saved = saved_weights(folder)
    try:
        with quiet_transformers():
            with torch.device("meta"):
                own = type(kind.from_config(config))
            loaded = {"state_dict": saved, "device_map": {"": "meta"}}
            model, report = own.from_pretrained(None, config=config, **loaded, **REPORTED)
    except Exception as error:  # what the sizes of a config make torch raise
        raise no_model(spec.path, error) from error
    missing = _missing(model, report, kind, spec.path)
    if missing or (head == "lm+value" and not has_value_head(folder)):
        check_new_head(spec, head)
    return config


def _asked(path: str, head: Head) -> tuple[Any, Any]:
    """Return the class of transformers that has a head, and a model's config for it."""
    if Path(path).exists() or not HUB_NAME.fullmatch(path):
        check_config(Path(path))
    try:
        with quiet_transformers():
            config = transformers.AutoConfig.from_pretrained(path)
    except Exception as error:  # what the values of its keys make its class raise
        raise no_model(path, error) from error
    kind = class_of(config, head, path)
    if kind in CLASSIFIERS:
        config.num_labels, config.classifier_dropout = 1, 0.0
    return kind, config


def _missing(model: nn.Module, report: Mapping[str, Any], kind: Any, path: str) -> set[str]:
    """Return what a folder lacks of a new head; nothing else may be missing."""
    fresh = head_names(model) if kind in CLASSIFIERS else set()
    check_report(report, fresh, path, type(model).__name__)
    return fresh & set(report["missing_keys"])


def check_new_head(spec: ModelSpec, head: Head) -> None:
    """Refuse a head that would start at zero, and stay there."""
    if not spec.new_head:
        raise EngineError(
            f"`{spec.path}` has no {head.removeprefix('lm+')} head, and nothing here trains one: "
            "all its outputs would be 0",
            hint=HEADS,
        )


def outline(spec: ModelSpec) -> Any:
    """Return a language model without storage: it tells the names and shapes of its weights.

    Raises:
        EngineError: the folder has no such model's config.
    """
    with torch.device("meta"):
        try:
            config = transformers.AutoConfig.from_pretrained(spec.path)
            model = transformers.AutoModelForCausalLM.from_config(config)
        except (OSError, ValueError) as error:
            raise no_model(spec.path, error) from error
        if spec.lora:
            add_adapter(model, spec.lora)
    return model


def no_model(path: str, error: Exception) -> EngineError:
    """Return the error of a folder from which transformers can't make a model."""
    text = repr(error) if isinstance(error, LookupError) else str(error).strip()
    first, *others = text.splitlines() or [type(error).__name__]
    reason = f"{first} {others[0].strip()}" if first.endswith(":") and others else first
    return EngineError(f"`{path}` holds no model: {reason}", hint=FOLDER)


def exact_attention(config: transformers.PreTrainedConfig) -> str | None:
    """Return what transformers shall attend by; None leaves it to transformers, which takes sdpa.

    That caps no scores, and doesn't say so.
    """
    softcap = getattr(config.get_text_config(), "attn_logit_softcapping", None)
    return None if softcap is None else register("capped")


def check_device(spec: ModelSpec) -> None:
    """Refuse a GPU where torch finds none."""
    if spec.device.startswith("cuda") and not torch.cuda.is_available():
        raise EngineError(
            f"`{spec.path}` is placed on a GPU, but torch finds none here",
            hint="give its pool no gpus, or install a torch and a driver for the GPU; "
            "`cluster.num_gpus` emulates GPUs",
        )


def _aligned(model: nn.Module) -> nn.Module:
    """Move weights to where torch allocates: in the file's memory they lie at odd addresses.

    A product's last bits depend on how its operands are aligned, so a copy of the weights in
    another process would else give other numbers.
    """
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data = tensor.data.clone()
    return model


def check_report(report: Mapping[str, Any], fresh: set[str], path: str, kind: str) -> None:
    """Refuse a folder that lacks weights, other than `fresh` ones, or has them in other shapes."""
    for name, found, needed in sorted(report["mismatched_keys"]):
        raise EngineError(
            f"`{name}` in `{path}` is of shape {list(found)}; a {kind} here needs {list(needed)}",
            hint="a head gives one number: train one with `head` set, or take another model"
            if name in fresh
            else "its config.json and its weights are of different models: copy the folder again",
        )
    lacking = set(report["missing_keys"]) - fresh
    if lacking:
        raise EngineError(
            f"`{path}` lacks {len(lacking)} weights of a {kind}, first `{min(lacking)}`",
            hint="check that the folder holds this kind of model and was written to its end",
        )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hold back the progress bar and the report of new weights; `load_model` checks them."""
    shown = transformers.utils.logging
    verbosity, bar = shown.get_verbosity(), shown.is_progress_bar_enabled()
    shown.set_verbosity_error()
    shown.disable_progress_bar()
    try:
        yield
    finally:
        shown.set_verbosity(verbosity)
        if bar:
            shown.enable_progress_bar()
