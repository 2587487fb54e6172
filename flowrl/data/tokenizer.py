"""The tokenizer that lies beside a model."""

import re
from pathlib import Path
from typing import Any

from flowrl.errors import DataError

FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt")
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
HUB_SECONDS = 10.0
"""Longest wait for the hub to say whether it has a model."""
PROBE = "The 3 quick foxes: 2 + 3 = 5.\n"


def load_tokenizer(path: str | Path) -> Any:
    """Return the tokenizer of a model's folder or hub name, with a padding token.

    Raises:
        DataError: there is none, it cannot be read, or it has no token to pad with.
    """
    folder = Path(path).expanduser()
    if not folder.exists():
        _find_on_hub(str(path))
    from transformers import AutoTokenizer

    if folder.exists() and not any((folder / name).is_file() for name in FILES):
        hint = f"save the tokenizer into the model's folder; looked for {', '.join(FILES)}"
        raise DataError("the folder has no tokenizer", where=str(path), hint=hint)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder if folder.exists() else path))
        tokenizer = _as_its_file_says(tokenizer, folder)
    except Exception as error:  # of a file that is none, the library's own are plain ones
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        hint = "save it again: `tokenizer.save_pretrained(folder)`"
        raise DataError(
            f"no tokenizer can be loaded: {reason}", where=str(path), hint=hint
        ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        hint = "set `pad_token` or `eos_token` in tokenizer_config.json"
        raise DataError("the tokenizer has no token to pad with", where=str(path), hint=hint)
    return tokenizer


def is_hub_name(path: str) -> bool:
    """Return whether the hub may have a model of that name: it has none of `runs/my--model`."""
    if not HUB_NAME.fullmatch(path):
        return False
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        try_to_load_from_cache(path, FILES[0])  # checks the name, and asks nobody
    except HFValidationError:
        return False
    return True


def check_ids(tokenizer: Any, rows: int) -> None:
    """Refuse a tokenizer whose ids go beyond the rows of a model's embedding.

    What was added to a vocabulary counts if runs write it: to begin, end and pad sequences, or in
    the chat template. (Gemma 3 has an image's token beyond those of its models of text.)

    Args:
        tokenizer: of transformers.
        rows: tokens of the model's vocabulary.

    Raises:
        DataError: naming the first token beyond.
    """
    added, template = tokenizer.get_added_vocab(), str(tokenizer.chat_template or "")
    ends = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token)
    beyond = {
        number: token
        for token, number in tokenizer.get_vocab().items()
        if number >= rows and (token not in added or token in ends or token in template)
    }
    if beyond:
        first = min(beyond)
        raise DataError(
            f"the tokenizer has ids up to {max(beyond)}, and the model {rows} tokens: it can't "
            f"read `{beyond[first]}`, {first}",
            hint="save beside a model the tokenizer that it was trained with, or resize the "
            "model's embedding: `resize_token_embeddings`",
        )


def _find_on_hub(name: str) -> None:
    """Refuse at once what is neither a folder, nor on the hub or in the user's cache of it.

    transformers would try for most of a minute before it says less.
    """
    if not is_hub_name(name):
        hint = "give a folder, or a name on the hub: `org/name`"
        raise DataError("there is no such model folder", where=name, hint=hint)
    import huggingface_hub

    cached = any(isinstance(huggingface_hub.try_to_load_from_cache(name, f), str) for f in FILES)
    if cached:
        return
    reason = "it is not in the cache, and HF_HUB_OFFLINE is set"
    if not huggingface_hub.constants.HF_HUB_OFFLINE:
        try:
            huggingface_hub.model_info(name, timeout=HUB_SECONDS)
            return
        except Exception as error:  # of the hub's HTTP library, which differs by version
            reason = str(error).strip().partition("\n")[0]
    raise DataError(f"there is no such folder, and no such model on the hub: {reason}", where=name)


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
