"""Whether two trainings agree, as far as rounding lets them: a third one, moved in the last digits, says how far."""

import numpy as np

# Relative size of the move, and how many times the moved training's distance is allowed.
MOVE, TIMES = 1e-6, 50.0
# Where the moved training is this far away, the case says nothing.
CHAOS = 1e-2
FLOOR = 2e-5


class Different(AssertionError):
    """Ours is not stock's."""


class Undecided(Exception):
    """The model is so badly conditioned that nothing can be said."""


def moved(arrays, seed):
    """Arrays moved in their last digits; whole numbers stay."""
    noise = np.random.default_rng(seed)
    return [
        (a * (1 + MOVE * noise.standard_normal(a.shape))).astype(a.dtype) if np.issubdtype(a.dtype, np.floating) else a
        for a in map(np.asarray, arrays)
    ]


def distance(one, other):
    """How far two arrays are apart, relative to their size."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if one.shape != other.shape:
        raise Different(f"shapes {one.shape} and {other.shape}")
    if not (np.isfinite(one) == np.isfinite(other)).all():
        return np.inf
    good = np.isfinite(one)
    return float(np.linalg.norm((one - other)[good]) / (np.linalg.norm(one[good]) + 1e-2 * np.sqrt(max(one.size, 1))))


def check(named):
    """Refuse differences.

    Args:
      named: (name, stock, ours, stock moved in its last digits) of everything that is compared.
    """
    worst, found = 0.0, []
    for name, stock, ours, other in named:
        if not np.isfinite(np.asarray(stock, np.float64)).all():
            raise Undecided(f"{name} is not finite in stock")
        conditioned, apart = distance(stock, other), distance(stock, ours)
        if conditioned > CHAOS:
            raise Undecided(f"{name} moves by {conditioned:.1e} when weights move by {MOVE}")
        allowed = FLOOR + TIMES * conditioned
        worst = max(worst, apart / allowed)
        if not apart <= allowed:
            found.append(f"{name}: {apart:.2e} apart, allowed {allowed:.2e}")
    if found:
        raise Different("; ".join(found))
    return worst
