"""Sparse exchange: what of a table is sent, what it costs, and what arrives.

Entries smaller in size than a threshold are not sent and arrive as 0: lossy, and simulated as sent. A table goes as
`dense` numbers, as `rows` (those with an entry left, with their numbers) or as single `entries` with their places, in
four bytes a number or two (float16).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Form = Literal["dense", "rows", "entries"]
PLACE = 4  # bytes for the number of a row or the place of an entry


def arrives(values: np.ndarray, threshold: float, half: bool) -> np.ndarray:
    """What the other side gets of these numbers."""
    sent = np.where(np.abs(values) >= threshold, values, np.float32(0)) if threshold > 0 else values
    return sent.astype(np.float16).astype(np.float32) if half else sent


def cost(sent: np.ndarray, form: Form, half: bool, n_items: int) -> int:
    """Bytes of a table [rows, w] of which only `sent`'s rows are concerned (a dense table goes whole all the same)."""
    number, width = (2 if half else 4), sent.shape[1]
    if form == "dense":
        return n_items * width * number
    if form == "rows":
        return int(sent.any(axis=1).sum()) * (PLACE + width * number)
    return int(np.count_nonzero(sent)) * (PLACE + number)
