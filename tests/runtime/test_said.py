"""Whoever shows what flowrl logs hears it."""

import logging

from flowrl.runtime.said import heard


def test_lines_of_flowrl_are_heard_and_those_of_others_and_of_after_are_not():
    lines, log = [], logging.getLogger("flowrl.runtime.model.attention")

    with heard(lines.append):
        log.debug("not this")
        log.info("%s rows", "packed")
        log.warning("and this")
        logging.getLogger("other").warning("not this")
    log.warning("nor this")

    assert lines == ["packed rows", "and this"]
