from flowrl.compiler.gigabytes import gigabytes, itemised


def test_bytes_are_said_in_units_of_a_billion():
    assert gigabytes(40_849_000_000) == "40.8 GB"


def test_items_are_words_and_seats_keep_their_names():
    said = itemised({"kv_cache": 2_100_000_000, "buffers": 0}, {"my_judge.score": 600_000_000})

    assert said == "kv cache 2.1 GB, my_judge.score 0.6 GB"
