"""Which kind of process a seed needs: the front end, the devices, the kernels. Known from the seed alone."""

import os

import attrs


@attrs.frozen
class Flavour:
    """A kind of process.

    Attributes:
      name: for the report.
      front_end: "keras" or "torch".
      variables: environment that must be set before anything is imported.
    """

    name: str
    front_end: str
    variables: dict

    def environment(self):
        """The environment of such a process."""
        plain = {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3", "OPENIPU_NATIVE": "off"}
        return {**os.environ, **plain, **self.variables}


_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

FLAVOURS = (
    Flavour("keras", "keras", {}),
    Flavour("torch", "torch", {}),
    Flavour("keras, native kernels", "keras", {"OPENIPU_NATIVE": "on"}),
    Flavour("torch, native kernels", "torch", {"OPENIPU_NATIVE": "on"}),
    Flavour("keras, 4 devices", "keras", _DEVICES),
    Flavour("torch, 4 devices", "torch", _DEVICES),
    Flavour("keras 2", "keras", {"TF_USE_LEGACY_KERAS": "1"}),
    Flavour("torch", "torch", {}),
)


def of(seed):
    """The flavour of a seed."""
    return FLAVOURS[seed % len(FLAVOURS)]
