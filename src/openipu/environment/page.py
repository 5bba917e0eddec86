"""Writes `docs/environment.md` from the declarations: `python -m openipu.environment.page`."""

import sys
from pathlib import Path

from openipu.environment.engine import KEYS, POPLAR
from openipu.environment.flags import shown
from openipu.environment.flags import table as flag_table
from openipu.environment.native import NATIVE
from openipu.environment.output import TALK
from openipu.environment.popdist import POPDIST
from openipu.environment.poptorch import POPTORCH
from openipu.environment.system import FILES, SYSTEM
from openipu.environment.tensorflow import TENSORFLOW
from openipu.environment.variable import Variable, declared
from openipu.markdown import table

PATH = Path("docs") / "environment.md"

# Groups in the order of the page; one that is missing here comes last.
ORDER = (SYSTEM, FILES, NATIVE, TALK, TENSORFLOW, POPTORCH, POPDIST, POPLAR)

TOP = """\
# Environment variables

Parsed in one place, `openipu.environment`; a bad value is refused with the valid ones, an unknown `OPENIPU_` name is
warned of. This page is written by `python -m openipu.environment.page`: change the declarations, not the page.
"""

QUIET = """\
**Messages of TensorFlow and XLA.** Their C++ libraries print lines about CUDA, CPU instructions, compilations that take
long ("Very slow compile? …") and the like. They read `TF_CPP_MIN_LOG_LEVEL` when they are loaded, before a program has
shown that it uses IPUs. So the import hook looks who is importing TensorFlow: if a module on the way there names `ipu`
(`from tensorflow.python import ipu`, `keras.ipu`, …), the variable is set to 3 unless the user has set it, and
`TF_ENABLE_ONEDNN_OPTS` to 0 in the same way. Other programs are left alone. In a notebook whose first cell imports
TensorFlow without naming `ipu`, set the variables yourself.
"""

DATA = """\
**Sample data.** With `OPENIPU_DATASETS=sample` these have the shapes, types and lengths of the originals. A warning
says once which a program got. Nothing is downloaded, read from a cache or written to one.

- MNIST and Fashion-MNIST (`keras.datasets`, `torchvision.datasets`): 5,000 images to train and 1,000 to test with from
  the originals, repeated.
- CIFAR-10 (both) and CIFAR-100 (`keras.datasets`): **synthetic**, noisy stripes whose slant and colour are those of the
  class; 5,000 and 1,000 of them, repeated.
- IMDB and Reuters (`keras.datasets`): **synthetic**, texts of made-up words, some of which tell the label.

Models learn from all of them; accuracies on synthetic data say nothing about the originals. Images that are held back
from the training part to validate with are also among those to train with, because they are repeated: look at the test
part. Other datasets are downloaded as ever.
"""

OTHERS = {
    "JAX_PLATFORMS": "JAX's own: which backends are tried, such as `cpu`.",
    "OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_RANK": "set by `poprun` and `mpirun`; read by popdist, and by "
    "`poptorch.Options().Distributed.setEnvVarNames` and its defaults.",
    "PMI_SIZE, PMI_RANK, MPI_LOCALRANKID": "set by the `mpirun` of MPICH and Intel; read by popdist.",
    "SLURM_STEP_NUM_TASKS, SLURM_PROCID, SLURM_LOCALID": "set by `srun`; read by popdist.",
    "SLURM_JOB_NODELIST": "set by SLURM; the hosts of `poprun` without `--host`.",
}

WITHOUT_EFFECT = (
    "POPLAR_RUNTIME_OPTIONS",
    "POPLAR_TARGET_OPTIONS",
    "POPLIBS_LOG_LEVEL",
    "PVTI_OPTIONS",
    "POPTORCH_EXPORT_PROTO_FILE",
    "POPTORCH_EXPORT_PROTO_AS_BINARY",
    "POPTORCH_MAX_GRAPH_LEN",
    "IPUOF_CONFIG_PATH",
    "IPUOF_VIPU_API_HOST",
    "IPUOF_VIPU_API_PARTITION_ID",
    "IPUOF_VIPU_API_PORT",
    "IPUOF_VIPU_API_TIMEOUT",
    "GCDA_MONITOR",
)


def page() -> str:
    """The whole page."""
    groups = {variable.group: None for variable in declared()}
    order = sorted(groups, key=lambda group: ORDER.index(group) if group in ORDER else len(ORDER))
    parts = [TOP]
    for group in order:
        rows = [_row(variable) for variable in declared() if variable.group == group]
        parts.append(f"## {group}\n\n" + table(("variable", "values", "default", "meaning"), rows))
        if group == FILES:
            parts.append(DATA)
        if group == TALK:
            parts.append(QUIET)
        if group == TENSORFLOW:
            parts.append("### Flags of `TF_POPLAR_FLAGS`\n\n" + _flags())
        if group == POPLAR:
            parts.append("### Keys of `POPLAR_ENGINE_OPTIONS` and `compilation_poplar_options`\n\n" + _keys())
    parts.append("## Read by others\n\n" + table(("variable", "meaning"), [(_code(k), v) for k, v in OTHERS.items()]))
    parts.append(
        "## Of the original, without effect here\n\n" + ", ".join(f"`{name}`" for name in WITHOUT_EFFECT) + ".\n"
    )
    return "\n".join(parts)


def _row(variable: Variable) -> tuple[str, ...]:
    values = ", ".join(f"`{value}`" for value in variable.valid) or variable.values
    default = f"`{variable.default}`" if variable.default else ""
    return f"`{variable.name}`", values, default, variable.meaning


def _flags() -> str:
    rows = [
        (
            f"`--{flag.name}`",
            f"`{shown(flag.default)}`" if flag.default != "" else "",
            flag.meaning,
            _effect(flag.works),
        )
        for flag in flag_table()
    ]
    return table(("flag", "default", "meaning", "here"), rows)


def _effect(works: bool) -> str:
    return "works" if works else "accepted, no effect"


def _keys() -> str:
    text = (
        "Keys are checked by name. They tune or describe hardware that is not here, so they change no results. "
        "`autoReport.all`, `autoReport.outputGraphProfile` and `autoReport.outputExecutionProfile` write a report of "
        "what is predicted (`docs/report.md`), always with all of its parts, into `autoReport.directory`.\n\n"
    )
    return text + table(("key", "meaning"), [(f"`{key}{'*' * key.endswith('.')}`", KEYS[key]) for key in KEYS])


def _code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def main() -> None:
    """Write the page into the repository whose root is the current directory."""
    if not PATH.parent.is_dir():
        sys.exit(f"There is no folder {PATH.parent} here. Run this in the root of the repository.")
    PATH.write_text(page(), encoding="utf-8")
    print(f"Wrote {PATH}")


if __name__ == "__main__":
    main()
