"""Memory of training states: which ZeRO stage is taken for which?"""

from __future__ import annotations

from grader.checks.families.memory_calls import LAST_STAGE, STAGES, Answer, agree

Taken = dict[str, set[int]]
"""Sharding → the stages for which all answers about it would be right."""


def explain_stages(answers: list[Answer]) -> str | None:
    """What is mixed up, where the answers are right but for the stage they are given for."""
    taken = _taken(answers)
    if taken is None:
        return None
    # Where answers fit several stages (one GPU, plain SGD), they are taken for right.
    wrong = {s: fits for s, fits in taken.items() if STAGES[s] not in fits}
    sharded = [s for s in taken if STAGES[s]]
    if not wrong:
        return None
    if wrong == {"zero1": {2}, "zero2": {1}}:
        return "zero-stages-swapped"
    if all(0 in taken[s] for s in sharded) and "none" not in wrong:
        return "gpus-ignored"
    if all(LAST_STAGE in taken[s] for s in sharded) and ("none" in wrong or len(wrong) > 1):
        return "divided-at-every-stage" if _at_last_stage(wrong) else None
    if _is_shifted(taken, wrong, 1) or _is_shifted(taken, wrong, -1):
        return "stage-off-by-one"
    if set(wrong) == {"fsdp"} and "zero3" in taken:
        return "fsdp-not-as-zero3"
    only = list(wrong.values())
    return "another-stages-answer" if len(only) == 1 and len(only[0]) == 1 else None


def _taken(answers: list[Answer]) -> Taken | None:
    """None where some answers fit no stage."""
    taken: Taken = {}
    for answer in answers:
        fits = {
            stage
            for stage in range(LAST_STAGE + 1)
            if agree(answer.parts, answer.call.parts(stage=stage))
        }
        known = taken.setdefault(answer.call.sharding, set(STAGES.values()))
        known &= fits
        if not known:
            return None
    return taken


def _at_last_stage(wrong: Taken) -> bool:
    return all(LAST_STAGE in fits for fits in wrong.values())


def _is_shifted(taken: Taken, wrong: Taken, step: int) -> bool:
    """Every wrong answer is that of the next stage (or the one before), on several stages."""
    both_middle = all(s not in taken or s in wrong for s in ("zero1", "zero2"))
    return (
        len(wrong) > 1
        and both_middle
        and all(STAGES[sharding] + step in fits for sharding, fits in wrong.items())
    )
