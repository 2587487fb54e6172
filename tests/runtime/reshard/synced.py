"""What one of the ranks does that have chunks of a trained model, or sample from it."""

import attrs
import torch
import torch.distributed as dist

from flowrl.compiler.layouts import Sharding
from flowrl.compiler.reshard import plan_reshard
from flowrl.compiler.shapes import ModelShape
from flowrl.ir.layout import Layout
from flowrl.runtime.engine import Request, Sampling
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.engines.torch import TorchTrainer
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.agreement import numbers
from flowrl.runtime.ranks.ranks import ALONE, Fsdp2, Ranks
from flowrl.runtime.reshard import Wire, compare, reshard
from flowrl.runtime.training.schedule import TrainerOptions
from flowrl.train.checks import checks_of
from flowrl.train.moves import move_of
from tests.runtime.engines.losses import PLAIN
from tests.runtime.reshard.carried import NODE, RANKS

WIDTHS = {"float32": 4, "bfloat16": 2}
WIDE = {4: torch.float32, 2: torch.bfloat16}


@attrs.frozen
class Sync:
    """A trainer on the first ranks, a generator on the last; both of one model.

    Attributes:
        trained: the model that the trainer has.
        old: the folder that the generator has read.
        dtype: in which both compute; a trainer's weights are float32.
    """

    trainer: Layout
    generator: Layout
    trained: str
    old: str
    dtype: str

    @property
    def plan(self):
        first = RANKS - self.generator.size
        src = Sharding(self.trainer, range(self.trainer.size), element_bytes=4)
        dst = Sharding(self.generator, range(first, RANKS), element_bytes=WIDTHS[self.dtype])
        return plan_reshard(self.shape, src, dst, NODE)

    @property
    def shape(self):
        return ModelShape.from_folder(self.trained)


def among(rank, members):
    """A rank's place among ranks that talk to one another."""
    if len(members) == 1:
        return ALONE
    group = dist.new_group(members, use_local_synchronization=True)
    return Ranks(members.index(rank), len(members), 60, group)


def sampled(generator):
    (completions,) = generator.generate([Request([3, 4, 5], 7, 2)], Sampling(max_tokens=5))
    return [(each.tokens, each.logprobs) for each in completions]


def synced(rank, sync, tokenizer):
    """Bring weights from engine to engine; return samples of them, and of a generator of them."""
    plan = sync.plan
    trained, old = (ModelSpec(path, dtype=sync.dtype) for path in (sync.trained, sync.old))
    held, generators = {}, []
    if rank in plan.src.ranks:
        ranks, fsdp = among(rank, list(plan.src.ranks)), Fsdp2(replicas=sync.trainer.dp)
        trainer = TorchTrainer(trained, TrainerOptions(**PLAIN), ranks=ranks, fsdp=fsdp)
        held = trainer.stored()
    if rank in plan.dst.ranks:
        start = rank - (rank - plan.dst.ranks[0]) % sync.generator.tp
        ranks = among(rank, list(range(start, start + sync.generator.tp)))
        generators = [HFGenerator(spec, tokenizer, ranks=ranks) for spec in (old, trained)]
    needed = dict(generators[0].stored()) if generators else {}
    before = [sampled(each) for each in generators]

    wire = Wire(WIDE[plan.sent_bytes])
    done = reshard(move_of(plan, sync.shape, rank), held, needed, wire)
    compare(checks_of(plan, sync.shape, rank), held, needed, wire, numbers)

    for each in generators[:1]:
        each.renewed(3)
    return done, before, [sampled(each) for each in generators]
