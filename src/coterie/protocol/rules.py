"""The protocols as data: `clean`, the default, and the papers' own, which can be reproduced and are labelled."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from coterie.errors import CoterieError, unknown_name

PAPER_WARNING = "paper protocol: held-out items shape the negatives"

Split = Literal["leave-one-out", "temporal-ratio", "global-time", "ratio", "k-fold"]
SPLITS: tuple[str, ...] = get_args(Split)


class Protocol(BaseModel):
    """Every choice that turns interactions into training and test."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "clean"
    split: Split = "leave-one-out"
    test_share: float = Field(default=0.2, gt=0, lt=1)  # of each history, or of all rows (global-time)
    validation_share: float = Field(default=0.2, gt=0, lt=1)  # of what the test leaves
    folds: int = Field(default=5, ge=3)  # k-fold: how many parts; one is test, the next validation
    fold: int = Field(default=0, ge=0)  # k-fold: which part is test
    min_interactions: int = Field(default=3, ge=1)  # fewer: train only (clean) or dropped (paper)
    drop_short: bool = False  # users below min_interactions are dropped before anything else, and items with them
    rating_threshold: float | None = None  # keep rows rated at least this; None: every row is positive
    merge_repeats: bool = True  # repeated (user, item) pairs become one, at the last occurrence
    negatives_avoid: Literal["train", "everything"] = "train"  # "everything" is the leak
    first_of_ties_is_last: bool = False  # among equal times the first row in the file counts as the latest
    item_order_is_time: bool = False  # without times: items rank by first appearance in the file
    candidates: int = Field(default=99, ge=1)  # sampled candidates beside each held-out item
    one_candidate_set: bool = False  # validation and test share their sampled candidates
    select_by: Literal["full", "sampled"] = "full"  # on which validation ranking the best round is chosen
    select_metric: str = "NDCG@10"

    @property
    def warning(self) -> str | None:
        return PAPER_WARNING if self.negatives_avoid == "everything" else None


PROTOCOLS: dict[str, Protocol] = {
    "clean": Protocol(),
    "paper:fedrap": Protocol(
        name="paper:fedrap", min_interactions=10, drop_short=True, merge_repeats=False, negatives_avoid="everything",
        first_of_ties_is_last=True, item_order_is_time=True, one_candidate_set=True, select_by="sampled",
        select_metric="HR@10",
    ),
    "paper:gpfedrec": Protocol(
        name="paper:gpfedrec", min_interactions=5, drop_short=True, merge_repeats=False, negatives_avoid="everything",
        first_of_ties_is_last=True, item_order_is_time=True, select_by="sampled", select_metric="HR@10",
    ),
    "paper:federank": Protocol(
        name="paper:federank", split="temporal-ratio", min_interactions=20, drop_short=True, select_metric="F1@10",
    ),
}  # fmt: skip


def resolve(
    name: str,
    home: str = "fedrap",
    split: str | None = None,
    min_interactions: int | None = None,
    rating_threshold: float | None = None,
    fold: int | None = None,
) -> Protocol:
    """The protocol of that name; `paper` means the one of the algorithm's home paper."""
    full = f"paper:{home}" if name == "paper" else name
    if full not in PROTOCOLS:
        raise unknown_name("protocol", name, ["clean", "paper", *list(PROTOCOLS)[1:]])
    if split is not None and split not in SPLITS:
        raise unknown_name("split", split, list(SPLITS))
    if min_interactions is not None and min_interactions < 1:
        raise CoterieError(f"--min-interactions is {min_interactions}; it counts interactions, so give 1 or more")
    if fold is not None and not 0 <= fold < PROTOCOLS[full].folds:
        raise CoterieError(f"--fold is {fold}; there are {PROTOCOLS[full].folds} folds, numbered from 0")
    asked = {"split": split, "min_interactions": min_interactions, "rating_threshold": rating_threshold, "fold": fold}
    return PROTOCOLS[full].model_copy(update={key: value for key, value in asked.items() if value is not None})
