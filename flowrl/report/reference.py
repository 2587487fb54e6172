"""`docs/ir.md`: how graphs are written, with every op and one program as they really print."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import attrs

from flowrl import ops
from flowrl.config.programs import load_program
from flowrl.ir.graph import Graph, Op
from flowrl.ir.printer import text
from flowrl.ops.move import Transfer
from flowrl.stages import trace

INTRODUCTION = """\
# Graphs as text

`flowrl show PROGRAM` prints the graph of a program; `--stage` prints it after each pass of the
compiler. The same text stands in tests as golden files. Each value is made once, before it is
used; the order of the nodes is an order in which they may run.

## Grammar

```ebnf
graph    = ("graph" | "region") name [attributes] NEWLINE {input} {node} return ;
input    = "input" value ":" type [pool] ["=" value] ;      (* = what it is in the graph around *)
node     = value ":" type "=" call {region}                 (* one result *)
         | value "=" call {"." result ":" type [pool]} {region} ; (* none or several *)
call     = op "(" [argument {"," argument}] ")" [attributes] [pool] [location] ;
argument = value | number ;                                 (* numbers stand where they are used *)
return   = "return" output {"," output} ;                   (* broken after commas, indented *)
output   = value | name "=" value ;
value    = "%" (number | name) ["." result] ;
attributes = "{" name "=" constant {"," name "=" constant} "}" ;
constant = number | name | "True" | "False" | string | "[" [constant {"," constant}] "]" ;
pool     = "@" name ;                                       (* after `place` *)
location = "#" file ":" line ;                              (* the user's line *)
```

A region is a nested graph: indented, with its own numbering. Its inputs `outer.0`, `outer.1`, ...
are values of the graph around it, `new.*` is what a forward pass gives the loss of an `update`,
`fixed.*` what its `prologue` gives its `part`, `carry.*` and `mb.*` are a scan's carry and
minibatch. Attributes at their defaults aren't printed; the options of a tensor op are, unless they
are None. Outputs are the next versions of models and carried values, then `metrics.*`.

## Types

| type | is |
| --- | --- |
| `f32[prompt, sample, token]` | an array with named axes: of `f32`, `i32`, `bool`, or of `row`, a \
row of the data with its columns; `f32[]` is one number |
| `f32[...]{policy.0 T=1 top_p=0.9 sampled}` | log-probabilities, with where they are from |
| `model<policy>` | one version of a model; `model<policy, snapshot>` is a frozen copy, \
`model<policy, tp2 x dp4>` lies over the ranks of its pool in that layout |
| `selection[prompt'2, ...]` | which rows are kept, and in which order |
| `minibatches[prompt'2, ...]` | a selection for each minibatch |

**Axes.** An axis is a name and the op that made it; sizes aren't part of it, and may be ragged.
`generate`, `minibatches`, `select`, `score`, `append` and `sample_until` make fresh axes. The
second axis of a name in a program prints as `token'2`. Values combine elementwise if they have the
same axes; one that lacks the last axes is broadcast, as `f32[prompt, sample]` into
`f32[prompt, sample, token]`.
`ops.align` brings rows of one origin into the order of another.

**Buffers.** Rows carried from step to step are inputs and outputs as others are: `%replay.tokens`
for each field of what `append` adds. A buffer begins empty, and each field stays in the pool where
`append` leaves it.

**Provenance.** `{policy.0 T=1 sampled}` says: of the model `policy` after 0 updates in this step,
at temperature 1, reported by the engine that sampled. A difference needs equal temperature, top_p,
top_k and min_tokens on both sides; a ratio needs the same model too, in any versions. `policy.*`
is of a buffer's rows, which this step's version or older ones have sampled.

**Models are linear.** `update` and `ema` use up a version and make the next; nothing may use the
old one afterwards. Data may be used any number of times.

## Ops

Attributes that a program sets, in the order in which they print; regions in bold.

"""

TENSOR_OPS = """
A `tensor op` prints under the name of its function: those of `flowrl.ops` (`group_advantage`,
`clipped_surrogate`, `token_mean`, ...), operators and methods of values (`add`, `mul`, `less`,
`mean`, ...), and functions under `@fl.op`, whose `code` attribute is `path.py:name#hash`. Its
attributes are the options of the function.

## A program

```python
"""


def reference() -> str:
    """Return `docs/ir.md`."""
    program = load_program("grpo")
    with open(program.loc.file, encoding="utf-8") as file:
        source = file.read().rstrip()
    printed = text(trace(program).graph)
    return (
        INTRODUCTION
        + "\n".join(_table())
        + "\n"
        + TENSOR_OPS
        + f"{source}\n```\n\nprints as\n\n```\n{printed}\n```\n"
    )


def op_classes() -> dict[str, type[Op]]:
    """Return every op class of `flowrl.ops`, by the name that it prints under."""
    classes = {cls for cls in _subclasses(Op) if "__attrs_attrs__" in vars(cls)}
    assert Transfer in classes, "the compiler's own ops are imported too"
    return dict(sorted((_printed(cls), cls) for cls in classes))


def _table() -> Iterator[str]:
    yield "| op | attributes | type | does |"
    yield "| --- | --- | --- | --- |"
    for name, cls in op_classes().items():
        cells = [f"`{name.replace('_', ' ') if name == 'tensor_op' else name}`"]
        cells += [", ".join(_attributes(cls)), f"`{_rule(cls)}`", _meaning(name, cls)]
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _printed(cls: type[Any]) -> str:
    """Return the name that an op without attributes would print under."""
    name: str = Op.name.fget(object.__new__(cls))  # type: ignore[attr-defined]
    return name


def _attributes(cls: type[Op]) -> Iterator[str]:
    fields: Mapping[str, Any] = attrs.fields_dict(cls)  # type: ignore[arg-type]
    if hasattr(cls, "reads"):
        yield "`reads`"
    for name, field in fields.items():
        if Graph in (field.type, *get_args(field.type)):
            yield f"**{name}**"
        elif field.repr:
            yield f"`{name}`"


def _rule(cls: type[Op]) -> str:
    return (cls.infer.__doc__ or "").partition("\n")[0].rstrip(".").replace("`", "")


def _meaning(name: str, cls: type[Op]) -> str:
    """Return the first line of the function that makes the op, or else of its class."""
    function = getattr(ops, name, None)
    made_by = function if callable(function) else cls
    return (made_by.__doc__ or "").partition("\n")[0]


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)
