from inline_snapshot import snapshot

from scripts import check_sizes


def project(tmp_path, source):
    (tmp_path / "flowrl").mkdir()
    (tmp_path / "flowrl" / "a.py").write_text(source)
    return tmp_path


def test_a_file_over_the_limit_fails(tmp_path, capsys):
    root = project(tmp_path, "x = 1\n" * 401)

    code = check_sizes.main(root)

    assert code == 1
    assert capsys.readouterr().out == snapshot(
        "flowrl/a.py:1: error: 401 lines in a file (at most 400)\n"
    )


def test_a_long_file_is_a_warning(tmp_path, capsys):
    root = project(tmp_path, "x = 1\n" * 301)

    code = check_sizes.main(root)

    assert code == 0
    assert capsys.readouterr().out == snapshot(
        "flowrl/a.py:1: warning: 301 lines in a file (at most 400)\n"
    )


def test_a_function_over_the_limit_fails(tmp_path, capsys):
    root = project(tmp_path, "def f():\n" + "    x = 1\n" * 60)

    code = check_sizes.main(root)

    assert code == 1
    assert capsys.readouterr().out == snapshot(
        "flowrl/a.py:1: error: `f` has 61 lines (at most 60)\n"
    )


def test_a_docstring_is_not_counted(tmp_path):
    docstring = '    """' + "words\n" * 50 + '    """\n'
    root = project(tmp_path, "def f():\n" + docstring + "    x = 1\n" * 59)

    assert check_sizes.main(root) == 0
