"""Executors: what `trainingModel` and `inferenceModel` return, and what they hold between calls."""
