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
    if not products or any(_contractions(inner) for e in step.eqns for inner in subjaxprs(e.params)):
        return False
    if not all(_is_of_matrices(product) for product in products):
        return False
    transposed = [product for product in products if product.params["dimension_numbers"][0] == ((1,), (1,))]
    return sum(map(_multiplications, transposed)) <= _LITTLE * sum(map(_multiplications, products))


def _contractions(step: ClosedJaxpr) -> bool:
    """Whether there is a product anywhere in a loop's or a branch's body."""
    return any(e.primitive.name in _CONTRACTIONS or any(map(_contractions, subjaxprs(e.params))) for e in step.eqns)


def _is_of_matrices(product: JaxprEqn) -> bool:
    return product.primitive.name == "dot_general" and all(aval_of(v).ndim == 2 for v in product.invars)


def _multiplications(product: JaxprEqn) -> int:
    left, right = (aval_of(v).shape for v in product.invars)
    (contracted, _), _ = product.params["dimension_numbers"]
    return math.prod(left) * math.prod(right) // math.prod(left[i] for i in contracted)
