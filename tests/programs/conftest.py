"""Tiny models and a tokenizer, for programs that run."""

from tests.runtime.conftest import model_folder, tokenizer

__all__ = ["model_folder", "tokenizer"]
