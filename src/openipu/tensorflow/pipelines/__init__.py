"""Pipelines made by hand: stages that are functions, run over micro-batches with one weight update for all of them."""
