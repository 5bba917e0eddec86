"""Answers `openipu plan` from inside the program it runs: the first training program is planned instead of run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from tqdm import tqdm

from openipu import hardware
from openipu.planner.choice import Answer, choose
from openipu.planner.words import options_to_type
from openipu.program import Plan, Program
from openipu.report.writing import write_text

if TYPE_CHECKING:
    from openipu.runtime import Setting


def answer(request: Path, front_end: str, program: Program, plan: Plan, setting: "Setting") -> None:
    """Plans a training program and ends the process; a program that trains nothing runs on as always.

    Args:
      request: a JSON file with `ipus`, `factors` and `output`, the file for the answer.
      front_end: whose words the options are in.
      program, plan, setting: what the front end was about to compile.
    """
    if program.update is None:
        return
    wish = json.loads(request.read_text(encoding="utf-8"))
    target = hardware.current_system().target
    # Only a terminal shows it.
    with tqdm(desc="Predicting plans", unit="plan", disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        found = choose(program, plan, target, setting.asked, wish["ipus"], wish["factors"], progress)
    write_text(Path(wish["output"]), json.dumps(_described(found, front_end, plan)))
    # Not an error: the program's own handlers of exceptions let it pass.
    raise SystemExit(0)


def _described(found: Answer, front_end: str, plan: Plan) -> dict[str, Any]:
    described = attrs.asdict(found)
    for choice, made in zip(found.choices, described["choices"], strict=True):
        made["type"] = options_to_type(front_end, choice, choice.candidate.plan(plan))
    return described
