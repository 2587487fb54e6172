"""Options that follow a source's name: `?key=value&key=value`."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl


def split_query(text: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a source's name, and its options with those that follow it laid over them.

    Values are read as JSON where they are JSON, else as text.
    """
    name, _, query = text.partition("?")
    return name, {**options, **{key: _value(value) for key, value in parse_qsl(query)}}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
