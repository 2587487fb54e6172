"""Write the problems of the benchmark: sums of two to four numbers (reasoning-gym's `chain_sum`).

    python make.py FOLDER

FOLDER/train.jsonl and heldout.jsonl: rows {"prompt", "answer"}, each prompt a chat with two worked
examples; no problem stands in both or twice in one.
"""

import json
import sys
from pathlib import Path
from typing import Any

import reasoning_gym

EXAMPLES = (
    ("State the final answer to the following arithmetic problem: 12 + 7 =", "19"),
    ("State the final answer to the following arithmetic problem: 40 - 3 + 25 =", "62"),
)
SIZES = {"heldout": 256, "train": 8192}


def messages(question: str) -> list[dict[str, str]]:
    """Return a problem as a chat, after two that are solved."""
    turns = [
        {"role": role, "content": text}
        for example in EXAMPLES
        for role, text in zip(("user", "assistant"), example, strict=True)
    ]
    return [*turns, {"role": "user", "content": question}]


def main(folder: Path) -> None:
    """Write both files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = reasoning_gym.create_dataset(
        "chain_sum", size=20_000, seed=1, min_terms=2, max_terms=4, min_digits=1, max_digits=2
    )
    entries: dict[str, dict[str, Any]] = {entry["question"]: entry for entry in drawn}
    rest = iter(entries.values())
    for name, size in SIZES.items():
        with (folder / f"{name}.jsonl").open("w") as out:
            for entry, _ in zip(rest, range(size), strict=False):
                row = {"prompt": messages(entry["question"]), "answer": entry["answer"]}
                out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
