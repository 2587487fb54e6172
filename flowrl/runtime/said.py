"""What flowrl says in its log, for those who show it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Listener(logging.Handler):
    """Hands each line to a function."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        super().__init__()
        self.hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on a line."""
        self.hear(record.getMessage())


@contextmanager
def heard(hear: Callable[[str], None]) -> Iterator[None]:
    """Hand each line that flowrl logs inside, of `logging.INFO` and above, to a function."""
    log, listener = logging.getLogger("flowrl"), Listener(hear)
    level = log.level
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(listener)
        log.setLevel(level)
