"""One gradient step of a factor model on some rows of one client: the inner loop of `factor.py`."""

from __future__ import annotations

import numpy as np
from numba import njit

# Reassociation lets the compiler use vector instructions in sums; NaN keeps its meaning, so divergence is seen.
FAST = {"reassoc", "contract", "arcp", "nsz"}

NO_PENALTY, L1, L2, SOFT_THRESHOLD = range(4)

BLOCK = 32  # rows scored together before they are updated: few enough for the nearest cache

_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_ROUNDER = np.float32(1.5 * 2**23)  # adding this leaves a float32 without a fraction


@njit(
    nogil=True, cache=True, forceinline=True, fastmath={"contract"}
)  # a callee inherits what it does not say; no reassociation here
def exp(x):  # type: ignore[no-untyped-def]
    """e**x in float32 for x <= 0, to two units in the last place. The library's is a call; this one vectorises."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    rounded = x * _LOG2_E + _ROUNDER
    whole = rounded - _ROUNDER
    r = x - whole * _LN2_HIGH - whole * _LN2_LOW
    p = np.float32(1 / 5040) * r + np.float32(1 / 720)
    p = p * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(1 / 2)
    p = p * r * r + r + np.float32(1.0)
    return np.int32(np.float32(p).view(np.int32) + (np.float32(rounded).view(np.int32) << 23)).view(np.float32)


@njit(nogil=True, cache=True, forceinline=True, fastmath=FAST, error_model="numpy")
def log1p(e):  # type: ignore[no-untyped-def]
    """log(1 + e) in float32 for 0 <= e <= 1: 2 artanh(e / (2 + e)) by its series. It vectorises too."""
    z = e / (np.float32(2.0) + e)
    q = z * z
    p = np.float32(2 / 13) * q + np.float32(2 / 11)
    p = p * q + np.float32(2 / 9)
    p = p * q + np.float32(2 / 7)
    p = p * q + np.float32(2 / 5)
    p = p * q + np.float32(2 / 3)
    return p * q * z + np.float32(2.0) * z


@njit(nogil=True, cache=True, forceinline=True, fastmath=FAST, error_model="numpy")
def step_rows(first, last, which, C, D, u, gu, bias, positives, negatives, work, scales, size, fade, s, track):  # type: ignore[no-untyped-def]
    """Step on rows which[first:last] of C and D, adding to gu. Returns sums of loss, penalty, bias gradient.

    What is stored are the rows over a scale: `scales` has those of C and D before the step, then those after it.
    """
    f = np.float32
    k = len(u)
    inverse = f(1.0) / f(size) if s.mean else f(1.0)
    per_row = f(1.0) / f(size * k) if s.mean else f(1.0)
    item = f(s.rate_item) * fade if s.shared else f(0.0)
    own = f(s.rate_own) * fade
    apart, sparse = f(2.0 * s.apart) * per_row, f(s.sparse) * per_row
    subgradient = sparse if s.penalty == L1 else f(0.0)
    ridge = f(2.0) * sparse if s.penalty == L2 else f(0.0)
    keep_own = f(1.0) - own * f(s.decay_own)
    scale_c, scale_d = f(scales[0]), f(scales[1])
    over_c, over_d = f(1.0 / scales[2]), f(1.0 / scales[3])
    same_c, same_d = f(scales[0] / scales[2]), f(scales[1] / scales[3])
    cross_c, cross_d = f(scales[1] / scales[2]), f(scales[0] / scales[3])
    regular, squares = track and (s.apart != 0.0 or s.sparse != 0.0), s.penalty == L2
    loss, penalty, g_bias = 0.0, 0.0, f(0.0)
    for top in range(first, last, BLOCK):
        end = min(top + BLOCK, last)
        row, x, positive, negative = which[top:end], work[0, top:end], positives[top:end], negatives[top:end]
        for t in range(end - top):
            y, away, extent, r = bias, f(0.0), f(0.0), row[t]
            if s.private and regular:
                for d in range(k):
                    c, o = scale_c * C[r, d], scale_d * D[r, d]
                    y += u[d] * (c + o)
                    away += (o - c) * (o - c)
                    extent += c * c if squares else abs(c)
            elif s.private:
                for d in range(k):
                    y += u[d] * (scale_c * C[r, d] + scale_d * D[r, d])
            elif regular:
                for d in range(k):
                    c = scale_c * C[r, d]
                    y += u[d] * c
                    extent += c * c if squares else abs(c)
            else:
                for d in range(k):
                    y += u[d] * (scale_c * C[r, d])
            x[t] = y
            if regular:
                reg = f(1.0) if s.whole else positive[t] + negative[t]
                penalty += np.float64(reg * (sparse * extent - f(0.5) * apart * away))
        if s.shared and s.item_bias:
            for t in range(end - top):
                x[t] += scale_c * C[row[t], k]
        if track:
            part = f(0.0)
            for t in range(end - top):
                if s.squared:
                    part += f(0.5) * (positive[t] * (f(1.0) - x[t]) ** 2 + negative[t] * x[t] ** 2)
                else:
                    soft = log1p(exp(-abs(x[t]))) + (x[t] if x[t] > f(0.0) else f(0.0))
                    part += (positive[t] + negative[t]) * soft - positive[t] * x[t]
            loss += np.float64(part)
        if s.squared:
            for t in range(end - top):
                x[t] = (positive[t] + negative[t]) * x[t] - positive[t]
        else:
            for t in range(end - top):
                e = exp(-abs(x[t]))
                weight = positive[t] + negative[t]
                x[t] = weight * (e if x[t] < f(0.0) else f(1.0)) / (f(1.0) + e) - positive[t]
        for t in range(end - top):
            r = row[t]
            reg = f(1.0) if s.whole else positive[t] + negative[t]
            g = x[t] * inverse
            g_bias += g
            pull, sign_step = apart * reg, over_c * item * subgradient * reg
            step, g_c, g_d = over_c * item * g, scale_c * g, scale_d * g
            keep = f(1.0) - item * (f(s.decay_item) + ridge * reg)
            if s.private:
                push, keep_c = cross_c * item * pull, same_c * (keep + item * pull)
                push_own, keep_d, step_own = cross_d * own * pull, same_d * (keep_own + own * pull), over_d * own * g
                for d in range(k):
                    c, o = C[r, d], D[r, d]
                    gu[d] += g_c * c + g_d * o
                    sign = (f(1.0) if c > f(0.0) else f(0.0)) - (f(1.0) if c < f(0.0) else f(0.0))
                    C[r, d] = keep_c * c - step * u[d] - push * o - sign_step * sign
                    D[r, d] = keep_d * o - step_own * u[d] - push_own * c
            else:
                keep *= same_c
                for d in range(k):
                    c = C[r, d]
                    gu[d] += g_c * c
                    sign = (f(1.0) if c > f(0.0) else f(0.0)) - (f(1.0) if c < f(0.0) else f(0.0))
                    C[r, d] = keep * c - step * u[d] - sign_step * sign
            if s.shared and s.item_bias:
                C[r, k] = same_c * (f(1.0) - item * f(s.decay_item)) * C[r, k] - step
            if s.shared and s.penalty == SOFT_THRESHOLD:
                theta = over_c * item * sparse * reg
                for d in range(k):
                    c = C[r, d]
                    C[r, d] = c - theta if c > theta else (c + theta if c < -theta else f(0.0) * c)
    return loss, penalty, g_bias
