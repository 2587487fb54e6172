"""Rows, bytes, seconds and lengths as text."""

from collections.abc import Iterable, Iterator, Sequence


def table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> Iterator[str]:
    """Yield rows with their columns aligned, those named in `right` to the right."""
    right = set(right)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def size(count: float) -> str:
    """Return bytes with three digits: `53.3 GB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError("the last unit takes all")


def seconds(took: float) -> str:
    """Return seconds with two decimals; under a hundredth, milli- or microseconds."""
    if took and took < 1e-5:
        return f"{took * 1e6:.2g} us"
    if took and took < 0.01:
        return f"{took * 1e3:.2g} ms"
    return f"{took:.2f} s"


def responses(mean: float) -> str:
    """Return what a mean length of responses, in tokens, is good for."""
    return (
        f"responses have {mean:.1f} tokens on average: "
        "`[workload] response_tokens` is what plans go by"
    )
