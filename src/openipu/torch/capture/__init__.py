"""From a torch module to a graph of Core ATen operations: what is recorded, replaced and named while it is traced."""
