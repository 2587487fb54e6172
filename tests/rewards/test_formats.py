"""What servers get, and what is read of their answers: the shapes of vLLM 0.26 and 0.32."""

import pytest
from inline_snapshot import snapshot

from flowrl.rewards.formats import FORMATS, Unreadable
from flowrl.rewards.server import ServerSpec

TEXTS = {"prompts": ["2+3=", "{x}:"], "completions": ["5", "\\frac{1}{2} {}"]}


def spec_of(kind="json", **keys):
    return ServerSpec("http://host/score", kind=kind, **keys)


def body(spec, **columns):
    return FORMATS[spec.kind].body(spec, TEXTS | columns)


def scores(spec, answer):
    return FORMATS[spec.kind].scores(spec, answer)


def fault(spec, answer):
    with pytest.raises(Unreadable) as caught:
        scores(spec, answer)
    return f"{caught.value.fault.kind}: {caught.value.fault.text}"


def judged(content):
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]}


def test_each_kind_gets_the_texts_in_its_own_fields():
    sent = {"query": "texts", "prompts": "prompts", "labels": "answer"}

    bodies = {
        "json": body(spec_of()),
        "json, named": body(spec_of(send=sent), answer=["5", "7"]),
        "classify": body(spec_of("classify")),
        "pooling": body(spec_of("pooling", template="Q {prompt} A {completion}")),
        "score": body(spec_of("score")),
    }

    assert bodies == snapshot(
        {
            "json": {"prompts": ["2+3=", "{x}:"], "completions": ["5", "\\frac{1}{2} {}"]},
            "json, named": {
                "query": ["2+3=5", "{x}:\\frac{1}{2} {}"],
                "prompts": ["2+3=", "{x}:"],
                "labels": ["5", "7"],
            },
            "classify": {"input": ["2+3=5", "{x}:\\frac{1}{2} {}"]},
            "pooling": {"input": ["Q 2+3= A 5", "Q {x}: A \\frac{1}{2} {}"]},
            "score": {"text_1": ["2+3=", "{x}:"], "text_2": ["5", "\\frac{1}{2} {}"]},
        }
    )


def test_a_template_is_filled_in_once_and_its_other_braces_stay():
    judge = spec_of("chat", template='Grade {completion} of {prompt} ({answer}): {"score": 1}')

    filled = FORMATS["chat"].body(
        judge, {"prompts": ["{completion}"], "completions": ["{prompt}"], "answer": [7]}
    )

    text = 'Grade {prompt} of {completion} (7): {"score": 1}'
    assert filled == {"messages": [{"role": "user", "content": text}]}


def test_scores_are_found_where_each_kind_has_them():
    entries = [{"index": 1, "probs": [0.2]}, {"index": 0, "probs": [0.9]}]
    tokens = [{"index": 0, "data": [[0.5]]}, {"index": 1, "data": [0.25]}]

    assert scores(spec_of(), {"rewards": [1, 2]}) == [1, 2]
    assert scores(spec_of(), [1, 2]) == [1, 2]
    assert scores(spec_of(scores="out.0.values"), {"out": {"0": {"values": [3]}}}) == [3]
    assert scores(spec_of("classify"), {"data": entries}) == [0.9, 0.2]
    assert scores(spec_of("pooling"), {"data": tokens}) == [0.5, 0.25]
    assert scores(spec_of("score"), {"data": [{"index": 0, "score": 0.75}]}) == [0.75]


@pytest.mark.parametrize(
    ("pattern", "content", "score"),
    [
        (None, " 0.5\n", 0.5),
        (None, "-3", -3.0),
        (r"\d+", "of 10 points: 8", 8.0),
        (r"score: (-?\d+)", "score: 1, no, score: -2, of 9", -2.0),
        (r"(\d)(/10)", "8/10", 8.0),
    ],
)
def test_a_judge_says_a_number(pattern, content, score):
    judge = spec_of("chat", template="{completion}", pattern=pattern)

    assert scores(judge, judged(content)) == [score]


def test_a_judge_without_a_number_and_answers_of_another_shape_say_what_came():
    plain = spec_of("chat", template="{completion}")
    pattern = spec_of("chat", template="{completion}", pattern=r"score: (\w+)")

    faults = [
        fault(plain, judged("8/10")),
        fault(plain, judged("")),
        fault(plain, judged(None)),
        fault(plain, judged([{"type": "text", "text": "8"}])),
        fault(pattern, judged("I'd say 7")),
        fault(pattern, judged("score: good")),
        fault(plain, {"choices": []}),
        fault(spec_of("classify"), {"data": [{"index": 0, "probs": [0.1, 0.9]}]}),
        fault(spec_of("pooling"), {"data": [{"index": 0, "data": [[0.1], [0.2]]}]}),
        fault(spec_of("score"), {"data": [{"score": 1.0}]}),
        fault(spec_of("score"), {"error": {"message": "x" * 600}}),
        fault(spec_of("score"), {"data": 3}),
        fault(spec_of("score"), {"data": [{"index": "first", "score": 3}]}),
        fault(spec_of("score"), {"data": [{"index": 0, "score": 1}, {"index": 0, "score": 2}]}),
        fault(spec_of("score"), {"data": [{"index": 1, "score": 1}, {"index": 2, "score": 2}]}),
    ]

    assert "\n".join(faults) == snapshot("""\
no_number: answered '8/10', no number
no_number: answered '', no number
no_number: answered None, no number
no_number: answered [{'type': 'text', 'text': '8'}], no number
no_number: answered "I'd say 7", in which `pattern` finds no number: 'score: (\\w+)'
no_number: answered 'score: good', in which `pattern` finds no number: 'score: (\\w+)'
unreadable: answered without `choices.0.message.content`: {'choices': []}
unreadable: answered 2 numbers for a completion, not one
unreadable: answered 2 numbers for a completion, not one
unreadable: answered without `data` of entries with `index`, from 0, and `score`: {'data': [{'score': 1.0}]}
unreadable: answered without `data` of entries with `index`, from 0, and `score`: {'error': {'message': 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...
unreadable: answered without `data` of entries with `index`, from 0, and `score`: {'data': 3}
unreadable: answered without `data` of entries with `index`, from 0, and `score`: {'data': [{'index': 'first', 'score': 3}]}
unreadable: answered without `data` of entries with `index`, from 0, and `score`: {'data': [{'index': 0, 'score': 1}, {'index': 0, 'score': 2}]}
unreadable: answered without `data` of entries with `index`, from 0, and `score`: {'data': [{'index': 1, 'score': 1}, {'index': 2, 'score': 2}]}\
""")
