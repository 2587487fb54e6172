"""Pages of which a command writes a part: what stands between two marks."""


def with_part(page: str, begin: str, end: str, part: str) -> str:
    """Return a page with another text between its marks, each on a line of its own."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{part}\n{end}{after}"
