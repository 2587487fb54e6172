"""Packed rows: where their elements lie, how they are chosen, joined and shared out."""
