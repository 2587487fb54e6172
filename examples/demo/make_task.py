"""Write the demo's problems: spell a word backward (reasoning-gym's `spell_backward`).

    python make_task.py FOLDER SEED

FOLDER/train.jsonl, validation.jsonl, heldout.jsonl: rows {"prompt", "entry"}; no word stands in
two of them or twice in one, whatever its case. FOLDER/demonstrations.jsonl: rows {"prompt",
"completion"} for the warm start, written by a careless teacher: it is right 33 times in 100,
copies the word as it stands 52 times, and reverses it with two letters swapped 15 times. So
the warm model samples the rewarded behaviour about 3 times in 10, and prefers another.
"""

import json
import random
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import reasoning_gym

Entry = dict[str, Any]

SIZES = {"heldout": 512, "validation": 256, "train": 8192}
DEMONSTRATIONS_A_PROBLEM = 5
RIGHT, COPIED = 0.33, 0.52


def entries(seed: int) -> Iterator[Entry]:
    """Yield the task's entries in the seed's order, each word once.

    reasoning-gym draws words with replacement, and its list has both "Tom" and "tom".
    """
    size = 20 * sum(SIZES.values())
    task = reasoning_gym.create_dataset(
        "spell_backward", size=size, seed=1000 + seed, min_word_len=4, max_word_len=7
    )
    seen: set[str] = set()
    for index in range(size):
        entry = task[index]
        word = entry["metadata"]["word"].lower()
        if word not in seen:
            seen.add(word)
            yield entry


def prompt(entry: Entry) -> str:
    """Return the question as the model reads it; the answer follows the equals sign."""
    return f"{entry['question']}="


def careless(answer: str, rng: random.Random) -> str:
    """Return what the teacher writes where `answer` is right."""
    draw = rng.random()
    if draw < RIGHT:
        return answer
    if draw < RIGHT + COPIED:
        return answer[::-1]
    slip = rng.randrange(len(answer) - 1)
    return answer[:slip] + answer[slip + 1] + answer[slip] + answer[slip + 2 :]


def demonstrations(problems: list[Entry], rng: random.Random) -> Iterator[dict[str, str]]:
    """Yield every problem several times, each time with a new answer of the teacher's."""
    for entry in problems * DEMONSTRATIONS_A_PROBLEM:
        yield {"prompt": prompt(entry), "completion": careless(entry["answer"], rng)}


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def main(folder: Path, seed: int) -> None:
    """Write the four files."""
    folder.mkdir(parents=True, exist_ok=True)
    source = entries(seed)
    problems = {name: list(islice(source, size)) for name, size in SIZES.items()}
    for name, chosen in problems.items():
        write(folder / f"{name}.jsonl", ({"prompt": prompt(e), "entry": e} for e in chosen))
    teacher = demonstrations(problems["train"], random.Random(seed))
    write(folder / "demonstrations.jsonl", teacher)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {Path(sys.argv[0]).name} FOLDER SEED")
    main(Path(sys.argv[1]), int(sys.argv[2]))
