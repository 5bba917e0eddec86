"""From a Python function of TensorFlow operations to a pure function on arrays."""
