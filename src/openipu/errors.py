"""The exceptions openipu raises for what it cannot do."""


class UnsupportedError(NotImplementedError):
    """Something openipu does not support; the message names it and the way round."""

    # AutoGraph adds where in the user's code to errors whose constructor it knows; others lose their type.
    __init__ = Exception.__init__


class OutOfIpusError(RuntimeError):
    """More virtual IPUs were asked for than the virtual system has."""


class OutOfMemoryError(MemoryError):
    """A program that would not fit into the memory of an IPU, where OPENIPU_MEMORY=error."""


class InvalidNumberError(ArithmeticError):
    """A program that traps floating-point exceptions met one; `site` says where."""

    def __init__(self, site: object) -> None:
        super().__init__(f"A floating-point exception happened: {site}")
        self.site = site


class IndexRangeError(IndexError, ValueError):
    """A label or an index that names nothing; the message says of what."""


class ForkedError(RuntimeError):
    """A program was to run in a process that was forked from one that uses JAX."""


class ReportError(RuntimeError):
    """A report that cannot be written or read; the message says which, why, and what to do."""


class InstanceError(RuntimeError):
    """Instances that run a program together cannot: they do not meet, or do different things."""
