"""The tokenizer that lies beside a model."""

from pathlib import Path
from typing import Any

from flowrl.errors import DataError

FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt")
PROBE = "The 3 quick foxes: 2 + 3 = 5.\n"


def load_tokenizer(path: str | Path) -> Any:
    """Return the tokenizer of a model's folder or hub name, with a padding token.

    Raises:
        DataError: there is none, it cannot be read, or it has no token to pad with.
    """
    from transformers import AutoTokenizer

    folder = Path(path).expanduser()
    if folder.exists() and not any((folder / name).is_file() for name in FILES):
        hint = f"save the tokenizer into the model's folder; looked for {', '.join(FILES)}"
        raise DataError("the folder has no tokenizer", where=str(path), hint=hint)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder if folder.exists() else path))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"no tokenizer can be loaded: {error}", where=str(path)) from error
    tokenizer = _as_its_file_says(tokenizer, folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        hint = "set `pad_token` or `eos_token` in tokenizer_config.json"
        raise DataError("the tokenizer has no token to pad with", where=str(path), hint=hint)
    return tokenizer


def _as_its_file_says(tokenizer: Any, folder: Path) -> Any:
    """Return a tokenizer that encodes as tokenizer.json does.

    Beside the config.json of some models, transformers builds the model's usual tokenizer and
    takes only the vocabulary from the file; ids are then wrong and nothing says so.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        return tokenizer
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    expected = Tokenizer.from_file(str(file)).encode(PROBE, add_special_tokens=False).ids
    if tokenizer(PROBE, add_special_tokens=False)["input_ids"] == expected:
        return tokenizer
    return PreTrainedTokenizerFast.from_pretrained(str(folder))
