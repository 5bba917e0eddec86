"""JAX has what openipu uses of it beyond its public API."""

from openipu import frameworks, jax_boundary


def test_this_jax_has_all_that_the_boundary_names():
    assert frameworks.missing(jax_boundary.TABLE) == []
