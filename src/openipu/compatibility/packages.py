"""The packages of the original in the order of the page; `openipu.compatibility` says how to add one."""

from pathlib import Path

import attrs

NAMES = Path("tests") / "names"


@attrs.frozen
class Package:
    """One package of the original.

    Attributes:
      title: of its part of the page.
      root: what its names start with; notes are written without it.
      inventory: its names, in the repository.
      notes: the module whose `NOTES` has what is to be said of them.
      introduction: what comes first.
      newer: the inventory of a later version under the same root: names that are in it as well are left out.
    """

    title: str
    root: str
    inventory: Path
    notes: str
    introduction: str = ""
    newer: Path | None = None


PACKAGES = (
    Package(
        "TensorFlow 2",
        "tensorflow.python.ipu",
        NAMES / "tensorflow2.json",
        "openipu.tensorflow.ipu.notes",
        "Modules of `ipu.ops` and `ipu.optimizers` are attributes of `ipu` as well, as in the original.",
    ),
    Package("Keras", "keras.ipu", NAMES / "keras_ipu.json", "openipu.tensorflow.keras.ipu.notes"),
    Package(
        "TensorFlow 1",
        "tensorflow.python.ipu",
        NAMES / "tensorflow1.json",
        "openipu.tensorflow.ipu.notes",
        "Names that TensorFlow 2 did not have any more; arguments that only TensorFlow 1 had are accepted by keyword.",
        newer=NAMES / "tensorflow2.json",
    ),
    Package("Addons", "ipu_tensorflow_addons", NAMES / "addons.json", "openipu.tensorflow.addons.notes"),
    Package("PopTorch", "poptorch", Path("tests") / "torch" / "poptorch_names.json", "openipu.torch.notes"),
    Package(
        "PopDist",
        "popdist",
        NAMES / "popdist.json",
        "openipu.instances.notes",
        "`poprun` and Horovod's names are in `docs/many-hosts.md`.",
    ),
)
