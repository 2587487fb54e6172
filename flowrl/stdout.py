"""What commands print, to a reader that may have stopped."""

import os
import sys

from flowrl.errors import RunFileError


def tell(text: str) -> None:
    """Print a text; a reader that stops early, such as `head`, has seen enough.

    A letter that the terminal doesn't have is printed as its number.

    Raises:
        RunFileError: it goes to a file that can't be written, as on a full disk.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or it is tried again
        if not isinstance(error, BrokenPipeError):
            hint = "make room where it goes, or send it elsewhere"
            raise RunFileError(f"can't print: {error.strerror}", hint=hint) from error
