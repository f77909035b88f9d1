"""FedRAP's curricula: how the weight of a regulariser changes with the round.

*published* (section 3.2 and appendix): a = 1, 2, ...; tanh(a / 10), sin(a / 10), square (0 for ten rounds, then 1,
alternating), 1 / (a + 1). *released*: a counts from 0, sin is (1 + sin(a / 10)) / 2, square flips every 5 rounds,
beginning with 1.
"""

from __future__ import annotations

import math
from typing import Literal

Curriculum = Literal["fixed", "tanh", "sin", "square", "frac"]
Form = Literal["published", "released"]


def weight(curriculum: Curriculum, form: Form, round_: int) -> float:
    """The factor of lambda and mu in this round (rounds count from 1). Published sin may be negative."""
    if curriculum == "fixed":
        return 1.0
    a = round_ if form == "published" else round_ - 1
    if curriculum == "tanh":
        return math.tanh(a / 10)
    if curriculum == "sin":
        return math.sin(a / 10) if form == "published" else (1 + math.sin(a / 10)) / 2
    if curriculum == "square":
        return float((a - 1) // 10 % 2) if form == "published" else float(a // 5 % 2 == 0)
    return 1 / (a + 1)
