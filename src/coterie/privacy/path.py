"""Steps on an upload's way: clip, dense, noise, quantise, thin. Each is (Upload, client ids, round) -> Upload.

They compose, work with every federated system and know nothing of any: an upload is rows, values and a dense rest. A
step treats each client by herself, so it does the same for a cohort in the simulator and for one person's device.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie.algorithms.interface import Upload
from coterie.privacy.noise import Secret

Step = Callable[[Upload, np.ndarray, int], Upload]


def compose(*steps: Step) -> Step:
    """One step after the other."""

    def path(upload: Upload, ids: np.ndarray, round_: int) -> Upload:
        for step in steps:
            upload = step(upload, ids, round_)
        return upload

    return path


def owners(upload: Upload) -> np.ndarray:
    """int64[r]: the place in the cohort of each row's sender."""
    return np.repeat(np.arange(len(upload.indptr) - 1), np.diff(upload.indptr))


def norms(upload: Upload, order: int = 2, neutral: float = 0.0) -> np.ndarray:
    """float64[c]: the norm of everything each client sends; `neutral` is what `dense` holds where nothing changed."""
    power = np.abs if order == 1 else np.square
    rows = power(upload.values.astype(np.float64)).sum(axis=1)
    total: np.ndarray = np.bincount(owners(upload), rows, minlength=len(upload.indptr) - 1)
    total = total + power(upload.dense.astype(np.float64) - neutral).sum(axis=1)
    return total if order == 1 else np.sqrt(total)


def clip(most: float, order: int = 2, neutral: float = 0.0) -> Step:
    """The whole upload scaled down so that its L2 (or L1) norm is at most `most`; not finite: nothing is left of it."""

    def step(upload: Upload, ids: np.ndarray, round_: int) -> Upload:
        size = norms(upload, order, neutral)
        with np.errstate(divide="ignore", invalid="ignore"):
            # A hair less, so that rounding to float32 and to fixed point does not lift it over the bound.
            scale = np.where(np.isfinite(size), np.minimum(1.0, most * (1 - 1e-6) / size), 0.0).astype(np.float32)
        scale[size == 0] = 1.0
        bad = scale == 0
        values = np.where(bad[owners(upload)][:, None], np.float32(0), upload.values) * scale[owners(upload)][:, None]
        dense = np.where(bad[:, None], np.float32(neutral), upload.dense)
        dense = (dense - np.float32(neutral)) * scale[:, None] + np.float32(neutral)
        return upload._replace(values=values, dense=dense.astype(np.float32))

    return step


def clip_each(most: float) -> Step:
    """Each row by itself scaled down to L2 norm `most`. This bounds no one's whole contribution."""

    def step(upload: Upload, ids: np.ndarray, round_: int) -> Upload:
        size = np.linalg.norm(upload.values, axis=1)
        scale = np.minimum(np.float32(1.0), np.float32(most) / np.maximum(size, np.float32(1e-30)))
        return upload._replace(values=upload.values * scale[:, None])

    return step


def dense(n_items: int) -> Step:
    """Every row is sent, zeros too, so that which rows come tells nothing. Rows sent twice are added up."""

    def step(upload: Upload, ids: np.ndarray, round_: int) -> Upload:
        clients, width = len(upload.indptr) - 1, upload.values.shape[1]
        table = np.zeros((clients * n_items, width), np.float32)
        place = owners(upload) * n_items + upload.rows
        if len(place) == clients * n_items and (np.diff(place) > 0).all():
            return upload
        if len(np.unique(place)) == len(place):  # the common case, and a hundred times as fast
            table[place] = upload.values
        else:
            np.add.at(table, place, upload.values)
        rows = np.tile(np.arange(n_items, dtype=np.int32), clients)
        return Upload(np.arange(clients + 1, dtype=np.int64) * n_items, rows, table, upload.dense)

    return step


def add_noise(scale: float, secret: Secret, kind: str = "gaussian", name: str = "local", rest: bool = True) -> Step:
    """Noise of deviation (Laplace: scale) `scale` on every number that is sent; `rest`: on the dense part too."""

    def step(upload: Upload, ids: np.ndarray, round_: int) -> Upload:
        draw = secret.normal if kind == "gaussian" else secret.laplace
        values, more = upload.values.copy(), upload.dense.copy()
        for place, client in enumerate(ids):
            mine = slice(upload.indptr[place], upload.indptr[place + 1])
            size, extra = values[mine].size, more.shape[1] if rest else 0
            drawn = scale * draw(size + extra, name, round_, int(client))
            values[mine] += drawn[:size].reshape(values[mine].shape).astype(np.float32)
            if extra:
                more[place] += drawn[size:].astype(np.float32)
        return upload._replace(values=values, dense=more)

    return step


def quantise(bits: int, secret: Secret) -> Step:
    """Each client's rows rounded at random to 2**bits levels between plus and minus her largest: right on average."""

    def step(upload: Upload, ids: np.ndarray, round_: int) -> Upload:
        levels = float((1 << (bits - 1)) - 1)
        values = upload.values.copy()
        for place, client in enumerate(ids):
            mine = values[upload.indptr[place] : upload.indptr[place + 1]]
            largest = float(np.abs(mine).max(initial=0.0))
            if largest == 0.0 or not np.isfinite(largest):
                continue
            grid = mine.astype(np.float64) * (levels / largest)
            up = secret.uniform(mine.size, "quantise", round_, int(client)).reshape(mine.shape)
            mine[:] = (np.clip(np.floor(grid + up), -levels, levels) * (largest / levels)).astype(np.float32)
        return upload._replace(values=values)

    return step


def thin(share: float, secret: Secret) -> Step:
    """Each touched row is sent with chance `share`. A control over what is sent, not privacy: rounds add up."""

    def step(upload: Upload, ids: np.ndarray, round_: int) -> Upload:
        kept = np.ones(len(upload.rows), bool)
        for place, client in enumerate(ids):
            mine = slice(upload.indptr[place], upload.indptr[place + 1])
            kept[mine] = secret.uniform(mine.stop - mine.start, "rows", round_, int(client)) < share
        counts = np.bincount(owners(upload)[kept], minlength=len(upload.indptr) - 1)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return upload._replace(indptr=indptr, rows=upload.rows[kept], values=upload.values[kept])

    return step
