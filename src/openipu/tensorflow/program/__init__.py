"""Captured functions put together to a program of the core."""
