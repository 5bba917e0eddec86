"""Comparison of lowered torch functions with torch itself, forward and gradient."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from openipu.torch.aten import decompositions, evaluate

# Small programs that run once: compiling them well is not worth it.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def lowered(function, *tensors):
    """The function traced on these tensors and lowered: arrays and a key to flat results.

    Tracing a function costs milliseconds where a capture by export costs a second. Composites are taken apart by it,
    so those with a lowering of their own need a test by capture.
    """
    functional = dispatch_functionalize(lambda *args: _tensors(function(*args)))
    trace = make_fx(
        functional, decomposition_table=decompositions.table(), tracing_mode="fake", _allow_non_fake_inputs=True
    )
    with torch.no_grad(), enable_python_dispatcher():
        module = trace(*tensors)
    graph = module.graph
    graph.eliminate_dead_code()
    todo = evaluate.steps(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    constants = {n: to_array(getattr(module, n.target)) for n in graph.nodes if n.op == "get_attr"}
    results = next(node for node in graph.nodes if node.op == "output").args[0]

    def run(arrays, key=None):
        env = evaluate.run(todo, constants | dict(zip(placeholders, arrays, strict=True)), key)
        return [env[node] for node in results]

    run.operations = [step.node.target for step in todo if step.node.target is not operator.getitem]
    return run


def _tensors(result):
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def to_array(tensor):
    tensor = tensor.detach()
    return (
        jnp.asarray(tensor.float().numpy(), jnp.bfloat16)
        if tensor.dtype == torch.bfloat16
        else tensor.numpy(force=True)
    )


def assert_like_torch(function, *tensors, gradient=True, rtol=1e-4, atol=1e-5):
    """Assert that the lowered function and its gradient agree with torch.

    Gradients are compared for the tensors that require them; if none does, for all floating-point ones.
    """
    with jax.enable_x64(True):
        _assert_like_torch(function, tensors, gradient, rtol, atol)


def _assert_like_torch(function, tensors, gradient, rtol, atol):
    marked = any(t.requires_grad for t in tensors)
    wanted = [gradient and t.is_floating_point() and (t.requires_grad or not marked) for t in tensors]
    ours = lowered(function, *(t.detach().clone() for t in tensors))
    leaves = [t.detach().clone().requires_grad_(w) for t, w in zip(tensors, wanted, strict=True)]
    expected = _tensors(function(*(leaf.clone() if w else leaf for leaf, w in zip(leaves, wanted, strict=True))))
    smooth = [e.requires_grad for e in expected]
    seeds = [_seed(e, number) for number, e in enumerate(expected)]

    def forward_and_back(moving, fixed, seeds):
        def forward(moving):
            given, rest = iter(moving), iter(fixed)
            results = ours([next(given) if w else next(rest) for w in wanted], jax.random.key(0))
            assert len(results) == len(expected)
            return [r for r, m in zip(results, smooth, strict=True) if m], results

        _, pull, results = jax.vjp(forward, moving, has_aux=True)
        return results, pull(seeds)[0]

    arrays = [to_array(t) for t in tensors]
    moving = [a for a, w in zip(arrays, wanted, strict=True) if w]
    fixed = [a for a, w in zip(arrays, wanted, strict=True) if not w]
    moving_seeds = [to_array(s) for s, m in zip(seeds, smooth, strict=True) if m]
    run = jax.jit(forward_and_back, compiler_options=QUICK)
    received, gradients = run(moving, fixed, moving_seeds)
    for number, (r, e) in enumerate(zip(received, expected, strict=True)):
        assert r.shape == tuple(e.shape) and str(r.dtype) == str(e.dtype).removeprefix("torch."), (r.dtype, e.dtype)
        _close(r, e, rtol, atol, f"result {number}")
    if any(smooth):
        pairs = [(e, s) for e, s, m in zip(expected, seeds, smooth, strict=True) if m]
        inputs = [leaf for leaf, w in zip(leaves, wanted, strict=True) if w]
        theirs = torch.autograd.grad([e for e, _ in pairs], inputs, [s for _, s in pairs], allow_unused=True)
        for number, (g, t, leaf) in enumerate(zip(gradients, theirs, inputs, strict=True)):
            _close(g, torch.zeros_like(leaf) if t is None else t, rtol * 3, atol * 3, f"gradient {number}")


def _seed(expected, number):
    values = np.random.default_rng(number).standard_normal(tuple(expected.shape))
    return torch.tensor(values).to(expected.dtype)


def _close(received, expected, rtol, atol, name):
    expected = to_array(expected)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(received, expected, err_msg=name)
    else:
        wide = np.asarray(expected, np.float64)
        np.testing.assert_allclose(np.asarray(received, np.float64), wide, rtol=rtol, atol=atol, err_msg=name)
