"""A plan in the words of a front end: the options to type."""

from openipu.planner.choice import Choice
from openipu.program import Plan


def options_to_type(front_end: str, choice: Choice, plan: Plan) -> list[str]:
    """The lines that make a program run as planned.

    Args:
      front_end: `tensorflow` or `poptorch`.
      choice: the plan.
      plan: the same as the core has it.
    """
    return (_poptorch if front_end == "poptorch" else _tensorflow)(choice, plan)


def _tensorflow(choice: Choice, plan: Plan) -> list[str]:
    candidate = choice.candidate
    lines = [f"config.auto_select_ipus = {candidate.ipus}"]
    if candidate.stages > 1:
        lines.append(f"model.auto_pipeline_stage_assignment({candidate.stages}, batch_size={candidate.micro_batch})")
        lines += [f"#   stage {stage} begins with {name}" for stage, name in enumerate(choice.starts)]
        lines.append(f"model.set_pipelining_options(gradient_accumulation_steps_per_replica={candidate.accumulation})")
    elif candidate.accumulation > 1:
        lines.append(
            f"model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica={candidate.accumulation})"
        )
    lines.append(f"model.compile(..., steps_per_execution={plan.device_iterations})")
    lines.append(f"model.fit(..., batch_size={candidate.micro_batch})")
    return lines


def _poptorch(choice: Choice, plan: Plan) -> list[str]:
    candidate = choice.candidate
    lines = []
    if candidate.stages > 1:
        for stage, name in enumerate(choice.starts):
            if stage:
                lines.append(f'poptorch.BeginBlock(model.get_submodule("{name.replace("/", ".")}"), ipu_id={stage})')
    lines.append(f"options.replicationFactor({candidate.replicas})")
    lines.append(f"options.Training.gradientAccumulation({candidate.accumulation})")
    lines.append(f"options.deviceIterations({plan.updates})")
    lines.append(f"poptorch.DataLoader(options, dataset, batch_size={candidate.micro_batch})")
    return lines
