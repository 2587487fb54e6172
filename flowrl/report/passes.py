"""What `docs/compiler.md` shows of one program: its plan, and what each pass makes of its graph."""

import re
from collections.abc import Callable, Iterator
from inspect import getdoc
from itertools import groupby
from textwrap import fill
from typing import Any

from flowrl.compiler.emit import emit
from flowrl.compiler.forecast import forecast
from flowrl.compiler.pipeline import PASSES, compile_graph
from flowrl.compiler.residency import residency
from flowrl.compiler.schedule import backlogs, check_order, schedule
from flowrl.config.planned import plan_run
from flowrl.config.run_file import load_run_file
from flowrl.ir.graph import Graph
from flowrl.ir.printer import WIDTH, text
from flowrl.report.options import settings
from flowrl.report.pages import with_part
from flowrl.report.plan import plan_lines

BEGIN, END = "<!-- begin: written by flowrl.report.passes -->", "<!-- end -->"

INTRODUCTION = """\
## Passes

A pass is a function from a graph and the cluster to a graph; `pipeline.PASSES` has them in order,
and the verifier runs after each. What a pass requires holds when it begins, what it ensures when it
ends; run again, it changes nothing. Here they lower the program above; of each, the lines that it
writes anew are shown. `flowrl show PROGRAM --stage S` prints the whole graph after one of
them; S is `simplify`, `bases`, `losses`, `place`, `layout` or `transfer`, in this order.
"""

NOTHING = "Here it changes nothing.\n"

FACTS = """\
What follows makes no graph: it reads the lowered one, and says or proves something of it.
`flowrl plan` prints that, `flowrl plan --json` the plan that is emitted.
"""

READERS: tuple[Callable[..., Any], ...] = (
    forecast,
    residency,
    schedule,
    check_order,
    backlogs,
    emit,
)


def with_passes(document: str, file: str) -> str:
    """Return a document with the part between `BEGIN` and `END` written anew.

    Args:
        document: that has both marks.
        file: the run file of the worked lowering.
    """
    return with_part(document, BEGIN, END, "\n".join(_sections(file)))


def _sections(file: str) -> Iterator[str]:
    conf = load_run_file(file, settings("8xH100", None))
    traced, plan = plan_run(conf)
    seen: dict[str, Graph] = {}
    compile_graph(traced.graph, plan.cluster, seen.__setitem__)
    before = text(traced.graph)
    yield _block("\n".join(plan_lines(conf, plan)))
    yield from (INTRODUCTION, _folded("the graph as traced", before))
    for run in PASSES:
        yield _section(run)
        after = text(seen[run.__name__])
        anew = _changed(before, after)
        yield _folded(f"what {run.__name__} writes anew", anew) if anew else NOTHING
        before = after
    yield FACTS
    yield "\n".join(map(_section, READERS)).rstrip()


def _section(step: Callable[..., Any]) -> str:
    """Return a heading, and a docstring without its arguments, its contract marked."""
    doc = (getdoc(step) or "").partition("\n\nArgs:")
    contract = re.search(r"Requires:.*?Ensures:.*?(?=\n\n|$)", doc[0] + doc[2], re.DOTALL)
    said = re.split(r"\n\n(?:Raises|Requires):", doc[0])[0]
    lines = [f"### `{step.__name__}`", said]
    if contract:
        requires, ensures = re.split(r"\s+Ensures:", contract[0])
        both = requires.replace("Requires:", "**Requires**"), f"**Ensures**{ensures}"
        lines += [fill(" ".join(each.split()), WIDTH) for each in both]
    return "\n\n".join(lines) + "\n"


def _changed(before: str, after: str) -> str:
    """Return the lines that only `after` has, `...` for those between; "" if there are none."""
    old, lines = set(before.splitlines()), after.splitlines()
    if old.issuperset(lines):
        return ""
    parts = groupby(lines, key=old.__contains__)
    return "\n".join("  ..." if kept else "\n".join(its) for kept, its in parts)


def _folded(title: str, shown: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{_block(shown)}\n</details>\n"


def _block(shown: str) -> str:
    return f"```\n{shown}\n```\n"
