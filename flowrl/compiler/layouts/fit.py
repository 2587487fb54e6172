"""Which layouts a model can have."""

from collections.abc import Iterator

from flowrl.compiler.layouts.division import VOCABULARY, sections, tp_dim
from flowrl.compiler.shapes import ModelShape, Parameter
from flowrl.errors import RunFileError
from flowrl.ir.layout import Layout
from flowrl.ir.sections import Section


def misfit(shape: ModelShape, layout: Layout) -> str:
    """Return why a model can't have a layout; nothing if it can.

    Heads and columns divide evenly; ranks may share key and value heads.
    """
    return next(_misfits(shape, layout), "")


def check_fit(shape: ModelShape, layout: Layout) -> None:
    """Raise RunFileError if a model can't have a layout."""
    problem = misfit(shape, layout)
    if problem:
        raise RunFileError(
            f"the layout `{layout}` doesn't fit this {shape.family} model: {problem}",
            hint="divide by fewer, and fill the pool with `dp` or `fsdp`",
        )


def _misfits(shape: ModelShape, layout: Layout) -> Iterator[str]:
    if layout.pp > shape.layers:
        yield f"`pp` {layout.pp} is more than its {shape.layers} layers"
    experts = layout.ep * (layout.tp if layout.whole_experts else 1)
    if layout.ep > 1 and not shape.experts:
        yield "`ep` divides experts, and it has none"
    if shape.experts and experts > shape.experts:
        yield f"it has {shape.experts} experts for {experts} ranks"
    for parameter, section in _divided(shape, layout) if layout.tp > 1 else ():
        if not section.fits(layout.tp):
            yield section.misfit(layout.tp, parameter.name)


def _divided(shape: ModelShape, layout: Layout) -> Iterator[tuple[Parameter, Section]]:
    """Yield what tensor parallelism divides evenly; the vocabulary it may pad."""
    seen = set()
    for parameter in shape.parameters():
        whole = layout.whole_experts and parameter.experts is not None
        if tp_dim(parameter) is None or parameter.kind in VOCABULARY or whole:
            continue
        for section in sections(parameter, shape):
            if section not in seen:
                seen.add(section)
                yield parameter, section
