"""`poptorch._logging`: names only."""

from openipu.torch.logger import logger, setLogLevel

__all__ = ["logger", "setLogLevel"]
