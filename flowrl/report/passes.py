"""The passes in `docs/compiler.md`: what each requires and ensures, and one program after each."""

import re
from collections.abc import Callable, Iterator
from inspect import getdoc
from typing import Any

from flowrl.compiler.emit import emit
from flowrl.compiler.forecast import forecast
from flowrl.compiler.pipeline import PASSES, compile_graph
from flowrl.compiler.residency import residency
from flowrl.compiler.schedule import backlogs, check_order, schedule
from flowrl.ir.graph import Graph
from flowrl.ir.printer import text
from flowrl.report.actions import order_lines, residency_lines
from flowrl.report.pages import with_part
from flowrl.report.plan import pool_lines, settings, traced_and_planned

BEGIN, END = "<!-- begin: written by flowrl.report.passes -->", "<!-- end -->"

INTRODUCTION = """\
## Passes

A pass is a function from a graph and the cluster to a graph; `pipeline.PASSES` has them in order,
and the verifier runs after each. What a pass requires holds when it begins, what it ensures when it
ends; run again, it changes nothing. `flowrl show PROGRAM --stage ...` stops after any of them.

Here they lower `examples/plan/grpo.toml` for `8xH100`, where the search finds this placement:
"""

FACTS = """\
What follows makes no graph: it reads the lowered one, and says or proves something of it.
`flowrl plan` prints that, `flowrl plan --json` the plan that is emitted.
"""


def with_passes(document: str, file: str) -> str:
    """Return a document with the part between `BEGIN` and `END` written anew.

    Args:
        document: that has both marks.
        file: the run file of the worked lowering.
    """
    return with_part(document, BEGIN, END, "\n".join(_sections(file)))


def _sections(file: str) -> Iterator[str]:
    traced, plan = traced_and_planned(file, settings("8xH100", None))
    seen: dict[str, Graph] = {}
    compile_graph(traced.graph, plan.cluster, seen.__setitem__)
    before = text(traced.graph)
    yield from (INTRODUCTION, _block("\n".join(pool_lines(plan))), _folded("as traced", before))
    for run in PASSES:
        yield _section(run)
        after = text(seen[run.__name__])
        same = "Here it changes nothing.\n"
        yield _folded(f"after {run.__name__}", after) if after != before else same
        before = after
    yield FACTS
    yield from (_section(residency), _block("\n".join(residency_lines(plan))))
    for step in (schedule, check_order, backlogs):
        yield _section(step)
    yield _block("\n".join(order_lines(plan, forecast(plan))))
    yield _section(emit).rstrip()


def _section(step: Callable[..., Any]) -> str:
    """Return a heading, and a docstring without its arguments, its contract marked."""
    doc = (getdoc(step) or "").partition("\n\nArgs:")
    contract = re.search(r"Requires:.*?Ensures:.*?(?=\n\n|$)", doc[0] + doc[2], re.DOTALL)
    said = re.split(r"\n\n(?:Raises|Requires):", doc[0])[0]
    lines = [f"### `{step.__name__}`", said]
    if contract:
        requires, ensures = re.split(r"\s+Ensures:", contract[0])
        lines += [requires.replace("Requires:", "**Requires**"), f"**Ensures**{ensures}"]
    return "\n\n".join(lines) + "\n"


def _folded(title: str, shown: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{_block(shown)}\n</details>\n"


def _block(shown: str) -> str:
    return f"```\n{shown}\n```\n"
