"""Front end for PyTorch: modules captured with `torch.export` and lowered to JAX."""
