import datasets
import pyarrow
import pytest
from inline_snapshot import snapshot

from flowrl.errors import DataError

ROWS = [{"prompt": "one", "n": 1}, {"prompt": "two", "n": 2}]


@pytest.fixture
def table():
    return datasets.Dataset.from_list(ROWS)


def columns(data):
    return [dict(row.columns) for row in data.cursor().take(data.rows).rows]


def places(data):
    return [row.where for row in data.cursor().take(data.rows).rows]


def test_parquet(opened, table, tmp_path):
    table.to_parquet(tmp_path / "a.parquet")

    data = opened("a.parquet", shuffle=False)

    assert columns(data) == ROWS
    assert places(data) == ["a.parquet:1", "a.parquet:2"]


def test_arrow_in_the_stream_and_the_file_format(opened, table, tmp_path):
    arrow = table.data.table
    with pyarrow.ipc.new_stream(tmp_path / "a.arrow", arrow.schema) as writer:
        writer.write_table(arrow)
    with pyarrow.ipc.new_file(tmp_path / "b.arrow", arrow.schema) as writer:
        writer.write_table(arrow)

    data = opened("*.arrow", shuffle=False)

    assert columns(data) == ROWS + ROWS
    assert [row.id for row in data.cursor().take(4).rows] == [0, 1, 2, 3]


def test_a_folder_saved_by_datasets(opened, table, tmp_path):
    table.save_to_disk(tmp_path / "saved")

    assert columns(opened("saved", shuffle=False)) == ROWS


def test_splits_of_a_saved_folder(opened, table, tmp_path):
    splits = {"train": table, "test": table.select([1])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")

    assert columns(opened("saved", split="test")) == ROWS[1:]
    with pytest.raises(DataError) as unsaid:
        opened("saved")
    assert str(unsaid.value) == snapshot("""\
several splits
saved
help: set `split` to one of train, test\
""")
    with pytest.raises(DataError) as unknown:
        opened("saved", split="tests")
    assert str(unknown.value) == snapshot("""\
no split `tests` (did you mean `test`?)
saved
help: set `split` to one of train, test\
""")


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_a_damaged_table_is_an_error_that_names_the_file(opened, written, name):
    written(name, "not a table")

    with pytest.raises(DataError, match="cannot be read as") as caught:
        opened(name)

    assert caught.value.where == name


@pytest.mark.parametrize("source", ["none.jsonl", "none.csv", "*.none", "none", "reasoning_gym"])
def test_a_source_that_does_not_exist_is_an_error(opened, source):
    with pytest.raises(DataError, match="there is no") as caught:
        opened(source)

    assert caught.value.where == source


@pytest.mark.parametrize("keys", [{"options": {"size": 3}}, {"split": "train"}])
def test_a_key_that_the_source_does_not_read_is_an_error(opened, written, keys):
    written("a.jsonl", '{"prompt": "a"}')

    with pytest.raises(DataError, match=f"`{next(iter(keys))}` means nothing"):
        opened("a.jsonl", **keys)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The hub's reader, offline: it takes `org/name` from the working folder."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "hub" / "org" / "words"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "hub")
    return folder


def test_a_split_of_a_data_set_on_the_hub(opened, hub):
    (hub / "train.jsonl").write_text('{"prompt": "one"}')
    (hub / "test.jsonl").write_text('{"prompt": "two"}')

    data = opened("org/words:test")

    assert columns(data) == [{"prompt": "two"}]
    assert places(data) == ["org/words:test:1"]
    assert columns(opened("org/words:train[:1]")) == [{"prompt": "one"}]
    with pytest.raises(DataError, match="several splits"):
        opened("org/words")


def test_a_data_set_that_the_hub_lacks_is_an_error(opened, hub):
    with pytest.raises(DataError, match="cannot be read as a data set on the hub"):
        opened("org/nothing")
