"""Where programs run: the strategy, its devices, the variables that live on them, and `strategy.run`."""
