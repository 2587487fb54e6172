"""Templates are checked as rows fill them in, without a row."""

from datetime import date

import pytest

from flowrl.data.template import template_columns
from flowrl.errors import DataError

FILLED = [
    ("Q: {question}", {"question": "1+1"}, "Q: 1+1"),
    ("{q[text]} {q.real!r:>3} {{}}", {"q": None}, None),
    ("{name:>4}|{name!r}|{name!a:.2}", {"name": "é"}, "   é|'é'|'\\"),
    ("{score:.{digits}f}", {"score": 0.25, "digits": 1}, "0.2"),
    ("{name!s:{fill}<{width}}", {"name": "a", "fill": "_", "width": 3}, "a__"),
    ("{name:>{width!s}}|{name:{width!r}}", {"name": "a", "width": 3}, "  a|a  "),
    ("{count:,} {share:.1%} {share:,.3}", {"count": 1000, "share": 0.5}, "1,000 50.0% 0.5"),
    ("{day:%d.%m.%Y}", {"day": date(2026, 11, 30)}, "30.11.2026"),
    ("no column", {}, "no column"),
]


@pytest.mark.parametrize(("template", "row", "filled"), FILLED)
def test_the_columns_of_a_template_are_all_that_fills_it_in(template, row, filled):
    assert template_columns(template) == row.keys()
    assert filled is None or template.format_map(row) == filled


@pytest.mark.parametrize(
    "template",
    [
        *("{a!x}", "{a!}", "{a!rr}", "{a:zz}", "{a:d }", "{a!r:zz}", "{a!r:d}", "{a:{b:{c}}}"),
        *("{a:99999999999999999999}", "{a:99999999999999999d}"),
        *("{", "}", "{a", "{a.}", "{a[}", "{a[]}", "{a[0]x}"),
        *("{}", "{0}", "{!r}", "{a:{}}", "{first name}", "{-}"),
    ],
)
def test_a_template_that_no_row_can_fill_in_is_refused(template):
    with pytest.raises(DataError, match=r"`template` (is not a template: |has a field)"):
        template_columns(template)
