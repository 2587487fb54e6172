"""A run that goes wrong behind the trainer's back after some steps, and is stopped.

    python benchmarks/chain_sum/fault.py tensor benchmarks/chain_sum/grpo.toml [a.b=value ...]
    python benchmarks/chain_sum/fault.py cache benchmarks/chain_sum/grpo.toml [a.b=value ...]

`tensor`: one number of one of vLLM's tensors is altered before it samples; every version's weights
are compared with those that train, and the error names the tensor. `cache`: vLLM finds what it has
cached of older weights; the error names the gap between its log-probabilities and the trainer's.
The run is that of `flowrl run` in all else; its folder ends with the fault's name. The cache's run
is in float32, where the two agree to 0.05 on an H200 and to 3e-4 on a CPU: there a gap of 0.2 stops
it. It exits with 0 if the run was stopped after the fault, and with 1 if it wasn't.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from flowrl.config.run_file import load_run_file
from flowrl.errors import EngineError
from flowrl.runtime.engine import Completion, Request, Sampling
from flowrl.runtime.engines.vllm.generator import VLLMGenerator
from flowrl.train.run import run_file

TENSOR = "model.norm.weight"
SETS = {
    "tensor": ("cluster.check_weights_every=1",),
    "cache": ("models.policy.dtype=float32", "train.max_logprob_mismatch=0.2"),
}


def altered(llm: Any) -> None:
    """Alter one number of one of vLLM's tensors."""

    def alter(model: Any) -> None:
        tensor = dict(model.named_parameters())[TENSOR].data
        tensor[0] += tensor[0].abs() / 64  # more than bfloat16 rounds off

    llm.apply_model(alter)


def stale(llm: Any) -> None:
    """Let vLLM find what it has cached, whatever weights that was of."""
    generate = llm.generate

    def unsalted(prompts: Sequence[dict[str, Any]], *given: Any, **named: Any) -> Any:
        for prompt in prompts:
            prompt["cache_salt"] = "stale"
        return generate(prompts, *given, **named)

    llm.generate = unsalted


FAULTS: dict[str, Callable[[Any], None]] = {"tensor": altered, "cache": stale}


@attrs.define
class Fault:
    """Brings a fault about once a run has sampled with some versions of its weights.

    Attributes:
        bring: the fault, given vLLM.
        after: versions that are sampled with before.
        versions: those that were.
        happened: whether it was brought about.
    """

    bring: Callable[[Any], None]
    after: int
    versions: set[int] = attrs.field(factory=set)
    happened: bool = False

    def install(self) -> None:
        """Stand before every engine of vLLM's."""
        generate = VLLMGenerator.generate
        fault = self

        def sample(
            self: VLLMGenerator, requests: Sequence[Request], sampling: Sampling
        ) -> list[list[Completion]]:
            fault.before(self)
            return generate(self, requests, sampling)

        VLLMGenerator.generate = sample  # type: ignore[method-assign]

    def before(self, generator: VLLMGenerator) -> None:
        """Bring the fault about, if it is time."""
        self.versions.add(generator.version)
        if len(self.versions) > self.after and not self.happened:
            print(f"now, with weights of version {generator.version}: {self.bring.__doc__}")
            self.bring(generator.llm)
            self.happened = True


def main(name: str, path: str, sets: Sequence[str], after: int) -> int:
    """Run until the fault is found; return the exit code."""
    fault = Fault(FAULTS[name], after)
    fault.install()
    folder = f"train.folder={load_run_file(path, tuple(sets)).folder}-{name}"
    try:
        run_file(path, (*SETS[name], *sets, folder))
    except EngineError as error:
        print(f"the run was stopped:\n{error}")
        return 0 if fault.happened else 1
    print("the run was not stopped")
    return 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("run_file")
    parser.add_argument("sets", nargs="*", help="a.b=value over the run file")
    parser.add_argument("--after", type=int, default=5, help="steps that go well")
    given = parser.parse_args()
    sys.exit(main(given.fault, given.run_file, given.sets, given.after))
