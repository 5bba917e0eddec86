"""Which of its two libraries for matrix products XLA uses on a CPU: YNNPACK, as by itself, or Eigen."""

import math

from jax.extend.core import ClosedJaxpr, JaxprEqn

from openipu import environment
from openipu.compiler.passes.jaxprs import aval_of, subjaxprs

_OPTION = "xla_cpu_experimental_ynn_fusion_type"
_CONTRACTIONS = ("dot_general", "conv_general_dilated")
# YNNPACK is up to twice as fast where the right side is stored transposed, as in the gradient of a layer's input.
# Where there is little of that, Eigen is faster: it shares every product out among the cores.
_LITTLE = 1 / 20


def options(step: ClosedJaxpr, platform: str) -> dict[str, str | bool]:
    """XLA's compiler options for a step.

    Args:
      step: as it will be compiled.
      platform: name of the JAX backend. Only "cpu" has this choice.
    """
    if platform != "cpu" or _OPTION in environment.xla_flags():
        return {}
    return {_OPTION: ""} if _better_with_eigen(step) else {}


def _better_with_eigen(step: ClosedJaxpr) -> bool:
    products = [e for e in step.eqns if e.primitive.name in _CONTRACTIONS]
    inside = [inner for e in step.eqns for inner in subjaxprs(e.params) if _contractions(inner)]
    if not products and len(inside) == 1:
        # A loop that the user wrote, if it trains; a recurrence multiplies by the same weights again and again.
        return _trains(inside[0]) and _better_with_eigen(inside[0])
    if not products or inside:
        return False
    if not all(_is_of_matrices(product) for product in products):
        return False
    transposed = [product for product in products if _contracted(product) == ((1,), (1,))]
    return sum(map(_multiplications, transposed)) <= _LITTLE * sum(map(_multiplications, products))


def _trains(step: ClosedJaxpr) -> bool:
    """Whether a step sums over the rows of both sides somewhere, as the gradient of a layer's weights does."""
    return any(e.primitive.name == "dot_general" and _contracted(e) == ((0,), (0,)) for e in step.eqns) or any(
        _trains(inner) for e in step.eqns for inner in subjaxprs(e.params)
    )


def _contractions(step: ClosedJaxpr) -> bool:
    """Whether there is a product anywhere in a loop's or a branch's body."""
    return any(e.primitive.name in _CONTRACTIONS or any(map(_contractions, subjaxprs(e.params))) for e in step.eqns)


def _is_of_matrices(product: JaxprEqn) -> bool:
    return product.primitive.name == "dot_general" and all(aval_of(v).ndim == 2 for v in product.invars)


def _contracted(product: JaxprEqn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions of both sides that a product sums over."""
    return product.params["dimension_numbers"][0]


def _multiplications(product: JaxprEqn) -> int:
    left, right = (aval_of(v).shape for v in product.invars)
    contracted, _ = _contracted(product)
    return math.prod(left) * math.prod(right) // math.prod(left[i] for i in contracted)
