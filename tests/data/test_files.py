import pytest
from inline_snapshot import snapshot

from flowrl.errors import DataError


def places(data):
    return [row.where for row in data.cursor().take(data.rows).rows]


def test_a_glob_reads_files_in_the_order_of_their_names(opened, written):
    written("b.jsonl", '{"prompt": "b"}')
    written("a.csv", "prompt\na\n")

    data = opened("[ab].*", shuffle=False)

    assert places(data) == ["a.csv:2", "b.jsonl:1"]


def test_a_file_whose_name_looks_like_a_glob_is_read_as_it_is(opened, written):
    written("a[1].jsonl", '{"prompt": "a"}')

    assert places(opened("a[1].jsonl")) == ["a[1].jsonl:1"]


def test_a_file_that_does_not_exist_is_told_with_one_of_a_name_like_it(opened, written, tmp_path):
    written("train.jsonl", "")

    with pytest.raises(DataError) as caught:
        opened("trian.jsonl")

    assert str(caught.value).replace(str(tmp_path), "FOLDER") == snapshot("""\
there is no file FOLDER/trian.jsonl (did you mean `train.jsonl`?)
trian.jsonl
help: relative paths start at FOLDER\
""")


def test_a_file_of_another_kind_is_an_error(opened, written):
    written("a.txt", "one")

    with pytest.raises(DataError, match=r"expected .jsonl, .csv, .parquet, .arrow files"):
        opened("*.txt")
    with pytest.raises(DataError, match=r"got a.txt"):
        opened("a.txt")


def test_a_folder_or_a_link_to_itself_in_place_of_a_file_is_an_error(opened, tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "link.jsonl").symlink_to("link.jsonl")

    with pytest.raises(DataError, match=r"expected a file; `folder.jsonl` is a folder"):
        opened("folder.jsonl")
    with pytest.raises(DataError, match=r"can't read the file: Too many levels of symbolic links"):
        opened("link.jsonl")


def test_relative_paths_start_in_the_folder_and_absolute_ones_do_not(opened, written, tmp_path):
    (tmp_path / "sub").mkdir()
    written("sub/a.jsonl", '{"prompt": "a"}')

    assert places(opened("sub/*.jsonl")) == ["sub/a.jsonl:1"]
    assert places(opened(tmp_path / "sub" / "*.jsonl")) == [f"{tmp_path}/sub/a.jsonl:1"]
