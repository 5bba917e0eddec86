"""Profiles models and finds stages for them."""
