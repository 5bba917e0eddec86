"""A captured module, options and an optimizer put together to a program of the core and its plan."""
