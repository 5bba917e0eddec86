"""What the operations of the IPU compute, as TensorFlow functions and as lowerings."""
