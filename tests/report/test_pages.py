"""Pages of which a command writes a part."""

from flowrl.report.pages import with_part


def test_a_part_stands_between_the_marks_of_a_page_and_is_written_anew():
    page = "a\n<begin>\nold\n<end>\nb\n"

    once = with_part(page, "<begin>", "<end>", "new")

    assert once == "a\n<begin>\nnew\n<end>\nb\n"
    assert with_part(once, "<begin>", "<end>", "new") == once
