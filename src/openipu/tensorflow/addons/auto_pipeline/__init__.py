"""Profiles the layers of a Keras model and divides them into pipeline stages, by memory and time that are predicted."""
