"""Write the problems of the benchmark: word problems of grade-school sums, with worked solutions.

    python make.py FOLDER

They are reasoning-gym's `gsm_symbolic` (Mirzadeh et al. 2024, arXiv:2410.05229) at its easiest.
FOLDER/demonstrations.jsonl has rows {"prompt", "completion"}, to imitate; train.jsonl and
heldout.jsonl {"prompt", "answer"}. No problem stands in two of them or twice in one. A solution
ends with a line `#### N`, and is short: a small model loses its way in a long one.
"""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import reasoning_gym

SIZES = {"heldout": 256, "train": 8192, "demonstrations": 8192}
DRAWN = 40_000
LONGEST = 320
"""Characters of a solution: about 128 tokens."""


def row(entry: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a problem as a file has it."""
    question = entry["question"].removesuffix(
        " Give the result as your final answer. Do not include units."
    )
    prompt = [{"role": "user", "content": question}]
    if name == "demonstrations":
        return {"prompt": prompt, "completion": entry["metadata"]["answer_cot"].strip()}
    return {"prompt": prompt, "answer": entry["answer"]}


def problems() -> Iterator[dict[str, Any]]:
    """Yield problems with short solutions, each once."""
    seen = set()
    for entry in reasoning_gym.create_dataset("gsm_symbolic", size=DRAWN, seed=1):
        if entry["question"] not in seen and len(entry["metadata"]["answer_cot"]) <= LONGEST:
            seen.add(entry["question"])
            yield entry


def main(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = problems()
    for name, size in SIZES.items():
        rows = [row(entry, name) for entry in islice(drawn, size)]
        if len(rows) < size:
            sys.exit(f"{name}: {size} problems wanted, {len(rows)} of {DRAWN} are left")
        lines = (json.dumps(each) + "\n" for each in rows)
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
