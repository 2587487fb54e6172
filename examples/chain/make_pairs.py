"""Write preferences for a reward model: each problem's right answer over the wrong ones sampled.

    python make_pairs.py FOLDER SEED

Reads FOLDER/task/train.jsonl and FOLDER/samples/samples.jsonl; writes FOLDER/pairs.jsonl: rows
{"prompt", "chosen", "rejected"} in random order, one for each wrong answer that the SFT model
gave to a problem, however often it gave it.
"""

import json
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    """Read one JSON object a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def pairs(
    problems: Iterable[dict[str, Any]], samples: Iterable[dict[str, Any]]
) -> Iterator[dict[str, str]]:
    """Yield a pair for each wrong answer, except blank ones: there is nothing to read in them."""
    answers = {problem["prompt"]: problem["entry"]["answer"] for problem in problems}
    given = {s["prompt"]: set[str]() for s in samples}
    for sample in samples:
        given[sample["prompt"]].add(sample["completion"])
    for prompt, completions in given.items():
        for wrong in sorted(completions - {answers[prompt]}):
            if wrong.strip():
                yield {"prompt": prompt, "chosen": answers[prompt], "rejected": wrong}


def main(folder: Path, seed: int) -> None:
    """Write pairs.jsonl."""
    made = list(pairs(read(folder / "task/train.jsonl"), read(folder / "samples/samples.jsonl")))
    random.Random(seed).shuffle(made)
    text = "".join(f"{json.dumps(pair)}\n" for pair in made)
    (folder / "pairs.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {Path(sys.argv[0]).name} FOLDER SEED")
    main(Path(sys.argv[1]), int(sys.argv[2]))
