"""The exceptions openipu raises for what it cannot do."""


class UnsupportedError(NotImplementedError):
    """Something openipu does not support; the message names it and the way round."""


class OutOfIpusError(RuntimeError):
    """More virtual IPUs were asked for than the virtual system has."""
