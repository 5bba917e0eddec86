"""Front end for PyTorch: modules captured with `torch.export` and lowered to JAX."""

from openipu import environment, frameworks

# Before JAX is loaded: its compiler, XLA, advises its developers on standard error when something takes long.
environment.quiet_libraries()
frameworks.require("jax", "torch")
