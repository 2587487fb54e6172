import json

from examples.chain import make_pairs

PROBLEMS = [
    {"prompt": "abc=", "entry": {"answer": "cba"}},
    {"prompt": "xyz=", "entry": {"answer": "zyx"}},
    {"prompt": "not sampled=", "entry": {"answer": "?"}},
]


def sampled(prompt, *completions):
    return [{"prompt": prompt, "completion": completion} for completion in completions]


def test_the_right_answer_is_preferred_to_each_wrong_one_once():
    samples = [*sampled("abc=", "abc", "cab", "abc"), *sampled("xyz=", "xyz", "zyx")]

    made = list(make_pairs.pairs(PROBLEMS, samples))

    assert made == [
        {"prompt": "abc=", "chosen": "cba", "rejected": "abc"},
        {"prompt": "abc=", "chosen": "cba", "rejected": "cab"},
        {"prompt": "xyz=", "chosen": "zyx", "rejected": "xyz"},
    ]


def test_blank_and_right_answers_alone_make_no_pair():
    samples = [*sampled("abc=", "", " "), *sampled("xyz=", "zyx")]

    assert list(make_pairs.pairs(PROBLEMS, samples)) == []


def test_the_seed_decides_the_order_of_the_rows(tmp_path):
    wrong = sampled("abc=", *(f"{i}" for i in range(20)))
    for name, rows in {"task/train": PROBLEMS, "samples/samples": wrong}.items():
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir()
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    texts = []
    for seed in (0, 0, 1):
        make_pairs.main(tmp_path, seed)
        texts.append((tmp_path / "pairs.jsonl").read_text())

    assert texts[0] == texts[1] != texts[2]
    assert sorted(texts[0].splitlines()) == sorted(texts[2].splitlines())
