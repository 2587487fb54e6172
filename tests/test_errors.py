from flowrl.data.record import RowError
from flowrl.errors import DataError


def test_an_error_is_told_of_another_place_without_what_a_subclass_needs():
    error = RowError("answer", "no answer", where="rows.jsonl:3", hint="add one")

    told = error.told("`data.source`: no answer", where="run.toml:8", made=[error.where])

    assert type(told) is DataError
    assert str(told) == "`data.source`: no answer\nrun.toml:8\nrows.jsonl:3\nhelp: add one"
    assert str(error.told(where="")) == "no answer\nhelp: add one"
