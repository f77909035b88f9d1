"""A small made-up world with tastes in it: every run of the demo and most tests live here.

Items have a kind and a mood (their titles show both), popularity has a long tail, people like one kind and mood and
move on to a second in the course of time, and every item has its season. All draws are integers: the same arguments
give the same bytes on every machine.
"""

from __future__ import annotations

import numpy as np

from coterie.data.interactions import Interactions
from coterie.data.rows import renumbered
from coterie.errors import CoterieError

MOODS = (
    ("Quiet", "Gentle", "Silver", "Pale", "Sleeping", "Distant", "Soft", "Hidden", "Patient", "Winter"),
    ("Crimson", "Burning", "Broken", "Iron", "Savage", "Restless", "Thunder", "Reckless", "Bitter", "Scarlet"),
    ("Laughing", "Clever", "Paper", "Dancing", "Lucky", "Velvet", "Golden", "Curious", "Merry", "Painted"),
)
KINDS = (
    ("Harbour", "Lighthouse", "Tide", "Island", "Voyage", "Anchor", "Shore", "Sailor", "Bay", "Storm"),
    ("Garden", "Orchard", "Meadow", "River", "Forest", "Valley", "Swan", "Rose", "Willow", "Field"),
    ("Detective", "Witness", "Alibi", "Letter", "Stranger", "Key", "Cellar", "Verdict", "Shadow", "Motive"),
    ("Planet", "Orbit", "Comet", "Signal", "Engine", "Star", "Colony", "Machine", "Moon", "Horizon"),
    ("Kingdom", "Crown", "Dragon", "Castle", "Sword", "Prophecy", "Throne", "Raven", "Knight", "Oath"),
    ("Wedding", "Summer", "Kiss", "Promise", "Café", "Waltz", "Sister", "Season", "Guest", "Heart"),
)
SEASONS = 4
DAY = 86_400
START = 1_577_836_800  # 1 January 2020


def synthetic(
    users: int = 600, items: int = 400, seed: int = 0, shortest: int = 15, longest: int = 120
) -> Interactions:
    """A seeded world of `users` people and `items` things; histories of `shortest` to `longest` things each."""
    _check(users, items, seed, shortest, longest)
    draw = np.random.Generator(np.random.PCG64(seed))
    tastes = len(KINDS) * len(MOODS)
    taste_of = np.arange(items) % tastes
    draw.shuffle(taste_of)
    popularity = 1_000_000 // (draw.permutation(items) + 30)
    season_of = draw.integers(0, SEASONS, items)
    tables = _tables(taste_of // len(MOODS), taste_of % len(MOODS), popularity, season_of)

    most = min(longest, items // 2)
    least = min(shortest, most)
    spread = most - least + 1
    lengths = least + draw.integers(0, spread, users) * draw.integers(0, spread, users) // spread
    histories = [_history(draw, int(length), tables) for length in lengths]
    _place_unseen(draw, histories, items)

    numbers = np.concatenate(histories)
    lengths = np.array([len(history) for history in histories])
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    times = np.concatenate([_times(draw, int(length)) for length in lengths])
    stars = draw.integers(0, 4, len(numbers)) + draw.integers(0, 3, len(numbers))  # 0 to 5, the middle most often
    titles = _titles(draw, taste_of)
    digits = len(str(items))
    fresh, item_ids = renumbered(numbers, [f"i{number:0{digits}}" for number in range(1, items + 1)])
    old = {f"i{number + 1:0{digits}}": title for number, title in enumerate(titles)}
    return Interactions(
        name="synthetic",
        indptr=indptr,
        items=fresh,
        ratings=np.clip(stars, 1, 5).astype(np.float32),
        times=times,
        user_ids=[f"u{number:0{len(str(users))}}" for number in range(1, users + 1)],
        item_ids=item_ids,
        titles=[old[item] for item in item_ids],
        notes={
            "source": f"synthetic:users={users},items={items},seed={seed},shortest={shortest},longest={longest}",
            "rows": {"in": len(numbers), "kept": len(numbers), "quarantined": 0},
            "repeated_pairs": 0,
            "announcements": [],
            "warnings": [],
        },
    )


def _check(users: int, items: int, seed: int, shortest: int, longest: int) -> None:
    for name, value, low in (("users", users, 1), ("items", items, 20), ("seed", seed, 0), ("shortest", shortest, 1)):
        if value < low:
            raise CoterieError(f"synthetic: {name}={value}, expected at least {low}.")
    if longest < shortest:
        raise CoterieError(f"synthetic: longest={longest} is less than shortest={shortest}.")


def _tables(kind: np.ndarray, mood: np.ndarray, popularity: np.ndarray, season_of: np.ndarray) -> np.ndarray:
    """Running sums of what each item weighs for each taste in each season: int64[seasons, kinds, moods, items]."""
    like = np.empty((len(KINDS), len(MOODS), len(kind)), np.int64)
    for wanted in range(len(KINDS)):
        for wish in range(len(MOODS)):
            like[wanted, wish] = np.where(kind == wanted, np.where(mood == wish, 100, 15), np.where(mood == wish, 2, 1))
    season = np.where(season_of == np.arange(SEASONS)[:, None], 2, 1)
    return np.cumsum(like[None] * popularity * season[:, None, None], axis=3)


def _history(draw: np.random.Generator, length: int, tables: np.ndarray) -> np.ndarray:
    """Different items in the order they were met; the first taste fades, the second grows."""
    items = tables.shape[3]
    tastes = [(int(draw.integers(0, len(KINDS))), int(draw.integers(0, len(MOODS)))) for _ in range(2)]
    met: dict[int, None] = {}  # a set that keeps its order
    for season in range(SEASONS):
        goal = length * (season + 1) // SEASONS
        tries = 8 * (goal - len(met)) + 8
        second = draw.integers(0, 100, tries) < 5 + 15 * season
        ticket = draw.integers(0, 1 << 60, tries)
        picked = np.empty(tries, np.int64)
        for here, (kind, mood) in zip((~second, second), tastes, strict=True):
            sums = tables[season, kind, mood]
            picked[here] = np.searchsorted(sums, ticket[here] % sums[-1], side="right")
        for item in picked.tolist():
            if len(met) == goal:
                break
            met.setdefault(item)
    if len(met) < length:  # what she likes is used up: fill with anything not met yet
        rest = np.setdiff1d(np.arange(items), np.array(list(met), np.int64))
        draw.shuffle(rest)
        met.update(dict.fromkeys(rest[: length - len(met)].tolist()))
    return np.array(list(met), np.int64)


def _place_unseen(draw: np.random.Generator, histories: list[np.ndarray], items: int) -> None:
    """Give every item that nobody met to somebody, so that the world has as many items as asked for."""
    unseen = np.setdiff1d(np.arange(items), np.concatenate(histories))
    for item in unseen.tolist():
        user = int(draw.integers(0, len(histories)))
        place = int(draw.integers(0, len(histories[user]) + 1))
        histories[user] = np.insert(histories[user], place, item)


def _times(draw: np.random.Generator, length: int) -> np.ndarray:
    """Seconds in two years, increasing: a first day, then gaps."""
    begin = START + int(draw.integers(0, 180 * DAY))
    gaps = draw.integers(60, 2 * 540 * DAY // (length + 1), length)
    return begin + np.cumsum(gaps)


def _titles(draw: np.random.Generator, taste_of: np.ndarray) -> list[str]:
    """A different readable title for each item; mood and kind stand in its words."""
    taken: dict[str, int] = {}
    titles = []
    words = draw.integers(0, 10, (len(taste_of), 2)).tolist()
    for taste, (first, second) in zip(taste_of.tolist(), words, strict=True):
        title = f"The {MOODS[taste % len(MOODS)][first]} {KINDS[taste // len(MOODS)][second]}"
        taken[title] = taken.get(title, 0) + 1
        titles.append(title if taken[title] == 1 else f"{title} {taken[title]}")
    return titles
