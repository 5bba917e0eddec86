"""The experimental addons for Keras."""
