"""Keys of verified transfers, a feature of the hardware: objects that can be made and are ignored."""

import types

import attrs

__all__ = ["KeyId", "VerificationOptions"]


@attrs.define
class KeyId:
    """A key, and where its numbers start."""

    key: int = 0
    start_id: int = -1


class VerificationOptions(types.SimpleNamespace):
    """The keys of a program's transfers; takes any attribute."""

    def __init__(self) -> None:
        super().__init__()
