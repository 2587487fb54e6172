"""Tensor parallelism: a language model divided over ranks that compute each token together.

Source: Shoeybi et al. 2019, arXiv:1909.08053, sec. 3. Which modules are divided by columns and
which by rows is what transformers declares of a model (`base_model_tp_plan`).
"""

import re
from collections.abc import Iterator
from copy import copy
from functools import partial

import attrs
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import linear
from transformers import PreTrainedModel

from flowrl.errors import EngineError
from flowrl.ir.sections import Section, joined_heads, section_spans
from flowrl.runtime.model.fsdp2 import chunk
from flowrl.runtime.model.models import ModelSpec, outline
from flowrl.runtime.ranks.mesh import mesh_of
from flowrl.runtime.ranks.ranks import Ranks

COLUMNS, ROWS = "colwise", ("rowwise", "rowwise_split_input")
UNDIVIDED = (None, "replicated_with_grad_allreduce")
JOINED = ("qkv_proj", "gate_up_proj")
"""Modules that are several matrices, of which a rank has a part each. transformers gathers what
they give, and divides it again for the rows behind them: they need neither here."""

QUERIES = ("q_proj", "qkv_proj", "query_key_value")
"""Modules of an attention, of which each has one."""

WHOLE_WEIGHTS = "sample with whole weights: a layout `dpN` of the generator"


@attrs.frozen
class Heads:
    """How many heads a layer has: of queries, and of keys and values."""

    query: int
    key: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> "Heads":
        """Return a model's."""
        config = model.config.get_text_config()
        query = config.num_attention_heads
        return cls(query, getattr(config, "num_key_value_heads", None) or query)

    def sections(self, role: str, size: int) -> tuple[Section, ...]:
        """Return the sections of the divided dim of a module that is called `role`."""
        match role:
            case "q_proj" | "o_proj" | "query_key_value" | "dense":
                return (Section(size, size // self.query),)
            case "k_proj" | "v_proj":
                return (Section(size, size // self.key, shared=True),)
            case "qkv_proj":
                return joined_heads(size, self.query, self.key)
            case "gate_up_proj":
                return (Section(size // 2), Section(size // 2))
        return (Section(size),)

    def over(self, ranks: int) -> "Heads":
        """Return how many each rank has."""
        return Heads(self.query // ranks, max(1, self.key // ranks))


def divide(model: PreTrainedModel, ranks: Ranks, device: str) -> dict[str, Tensor]:
    """Leave this rank its part of a model, which the ranks from now on call together.

    All get the same logits, bit for bit. The parts are DTensors.

    Args:
        model: for causal language modelling, whole.
        ranks: all have loaded it.
        device: where parts shall live.

    Returns:
        i64[row] by parameter name: the order of its rows in which even chunks are the ranks'
        parts. A row may come up several times: ranks share heads. Parameters that are in that
        order are left out.

    Raises:
        EngineError: transformers declares no way to divide the model, or another one than by
            columns and rows; or heads or columns don't divide evenly.
    """
    mesh = mesh_of(ranks.group, 1, torch.device(device).type, ranks.timeout)
    heads, orders = Heads.of(model), {}
    for name, module, columns, parts in divided(model, ranks.count):
        parent, _, role = name.rpartition(".")
        if columns and (order := order_of(parts, ranks.count)) is not None:
            for key, parameter in module.named_parameters():
                parameter.data = parameter.data[order]
                orders[f"{name}.{key}"] = order
        divide_linear(module, columns, mesh, ranks)
        if role in QUERIES:
            narrow(model.get_submodule(parent), heads.over(ranks.count))
    divide_vocabulary(model, mesh)
    return orders


def divided(
    model: PreTrainedModel, ranks: int
) -> Iterator[tuple[str, nn.Linear, bool, tuple[Section, ...]]]:
    """Yield the layers that ranks divide, whether by columns, and the sections of that dim.

    Raises:
        EngineError: as `divide`.
    """
    heads = Heads.of(model)
    for name, module, columns in declared(model):
        role = name.rpartition(".")[2]
        parts = heads.sections(role, module.out_features if columns else module.in_features)
        check_fit(parts, ranks, f"{name}.weight")
        yield name, module, columns, parts


def check_divides(path: str, ranks: int) -> None:
    """Refuse a model that so many ranks can't divide, before any of its weights are read.

    Args:
        path: its folder.
        ranks: of a replica.

    Raises:
        EngineError: as `divide`.
    """
    for _ in divided(outline(ModelSpec(path)), ranks):
        pass


def declared(model: PreTrainedModel) -> Iterator[tuple[str, nn.Linear, bool]]:
    """Yield the layers that are divided as transformers declares it, and whether by columns.

    Raises:
        EngineError: it declares nothing, or something else than columns and rows.
    """
    plan, kind = model.tp_plan, model.config.model_type
    if not plan:
        raise EngineError(
            f"transformers declares no `base_model_tp_plan` for models of type `{kind}`, by which "
            "several ranks could divide this one",
            hint=WHOLE_WEIGHTS,
        )
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    for name, part in [*model.named_modules(), *model.named_parameters()]:
        style = plan.get(re.sub(r"(?<=\.)\d+(?=\.)", "*", name))
        if style in UNDIVIDED or any(part is end for end in ends):
            continue
        columns = style == COLUMNS or name.endswith(JOINED)
        if not isinstance(part, nn.Linear) or not (columns or style in ROWS):
            raise EngineError(
                f"ranks divide linear layers by `colwise` and `rowwise`; in models of type "
                f"`{kind}` transformers declares `{name}` as `{style}`",
                hint=WHOLE_WEIGHTS,
            )
        yield name, part, columns


def check_fit(parts: tuple[Section, ...], ranks: int, name: str) -> None:
    """Refuse what doesn't divide evenly."""
    for part in parts:
        if not part.fits(ranks):
            raise EngineError(
                f"the model doesn't fit: {part.misfit(ranks, name)}",
                hint="divide by fewer, and fill the pool with `dp`",
            )


def order_of(parts: tuple[Section, ...], ranks: int) -> Tensor | None:
    """Return i64[row], the rows of all ranks behind one another; None if they are in order."""
    spans = [span for index in range(ranks) for span in section_spans(parts, index, ranks)]
    order = torch.cat([torch.arange(*span) for span in spans])
    return None if torch.equal(order, torch.arange(len(order))) else order


def divide_linear(module: nn.Linear, columns: bool, mesh: DeviceMesh, ranks: Ranks) -> None:
    """Divide a linear layer by columns, or by rows: then its ranks add up what each gives.

    Its forward is on plain tensors, of what the rank has: a DTensor's would take longer than the
    product itself where tokens come one by one.
    """
    for name, parameter in module.named_parameters():
        matrix = Replicate() if name == "bias" else Shard(1)
        placement = Shard(0) if columns else matrix
        part = distribute_tensor(parameter, mesh, [placement], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(part, requires_grad=False))
    forward = partial(by_columns, module) if columns else partial(by_rows, module, ranks)
    module.forward = forward  # type: ignore[method-assign]


def by_columns(module: nn.Linear, states: Tensor) -> Tensor:
    """Return f[..., own output] of f[..., input], which all ranks have."""
    return linear(states, chunk(module.weight), None if module.bias is None else chunk(module.bias))


def by_rows(module: nn.Linear, ranks: Ranks, states: Tensor) -> Tensor:
    """Return f[..., output], the same on all ranks, of f[..., own input]."""
    total = linear(states, chunk(module.weight))
    ranks.sum([total])
    return total if module.bias is None else total + chunk(module.bias)


def narrow(attention: nn.Module, own: Heads) -> None:
    """Tell an attention how many heads are here."""
    known = {
        "num_attention_heads": own.query,
        "num_heads": own.query,
        "num_key_value_heads": own.key,
        "num_key_value_groups": own.query // own.key,
    }
    attention.config = copy(attention.config)
    for holder in (attention, attention.config):
        for name in known.keys() & vars(holder).keys():
            setattr(holder, name, known[name])


def divide_vocabulary(model: PreTrainedModel, mesh: DeviceMesh) -> None:
    """Divide embedding and head, tied or not, by tokens; every rank gets all logits."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head.weight is embedding.weight
    for module, style in (
        (embedding, RowwiseParallel(input_layouts=Replicate())),
        (head, ColwiseParallel(output_layouts=Replicate())),
    ):
        parallelize_module(module, mesh, style, src_data_rank=None)
    if tied:
        head.weight = embedding.weight
