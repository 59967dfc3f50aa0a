"""How a check is written: a pytest test that says which run it judges.

    @check(exercise="broadcast", function="broadcast_module", program="broadcast.module",
           inputs=ranks_differ, world_sizes=(2, 3))
    def test_every_parameter(case):
        '''Every parameter ends up equal to rank `src`'s, bit for bit.'''
        case.equals_reference("parameters/*", exact=True)

The body only judges. Which runs it needs is data, so that they can be made ahead, side
by side, shared with the reference's and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from grader.checks.draw import Draw

ATTRIBUTE = "ranklings_check"
Inputs = Callable[[Draw], Mapping[str, Any]]
Test = TypeVar("Test", bound=Callable[..., None])

GROUPS = ("ready", "learner", "none")


@dataclass(frozen=True)
class Declaration:
    """What `check` was given, and the test's own name and promise."""

    id: str
    promise: str
    exercise: str
    functions: tuple[str, ...]
    program: str
    inputs: Inputs
    world_sizes: tuple[int, ...]
    weight: float
    after: tuple[str, ...]
    group: str
    reference_program: str
    delays_s: tuple[float, ...]


def check(
    *,
    exercise: str,
    program: str,
    function: str | tuple[str, ...] = (),
    inputs: Inputs | None = None,
    world_sizes: tuple[int, ...] = (2, 3),
    weight: float = 1,
    after: str | tuple[str, ...] | None = None,
    group: str = "ready",
    reference_program: str | None = None,
    delays_s: tuple[float, ...] = (),
) -> Callable[[Test], Test]:
    """Declare a pytest test to be a check.

    Args:
        exercise: the exercise's name in `course.toml`.
        program: the rank program, `module.function` in the lesson's `rank_programs`.
        function: the learner's functions it needs; a missing one fails it without a run.
        inputs: draws one rank's inputs; called in the grader, once per rank.
        world_sizes: the body runs once per world size, smallest first, up to the first
            that fails.
        weight: its share of the exercise's points; 0: shown, not scored.
        after: ids of checks that must have passed, else it is skipped with that reason.
        group: who makes the default process group: `ready` (the harness), `learner`
            (the submission does, at a port of the harness's) or `none`.
        reference_program: another rank program that makes the expected values; it runs
            with the solution loaded.
        delays_s: seconds to sleep before every collective, per rank.

    Raises:
        ValueError: an argument is out of its range.
    """
    if group not in GROUPS:
        raise ValueError(f"group must be one of {', '.join(GROUPS)}, not {group!r}")
    if list(world_sizes) != sorted(set(world_sizes)) or not world_sizes or world_sizes[0] < 1:
        raise ValueError(f"world_sizes must be rising and at least 1, not {world_sizes!r}")

    def declare(test: Test) -> Test:
        promise = " ".join((test.__doc__ or "").split())
        if not promise:
            raise ValueError(f"{test.__name__} needs a docstring: the promise the learner reads")
        declaration = Declaration(
            id=test.__name__.removeprefix("test_"),
            promise=promise,
            exercise=exercise,
            functions=_as_tuple(function),
            program=program,
            inputs=inputs or (lambda _draw: {}),
            world_sizes=tuple(world_sizes),
            weight=weight,
            after=_as_tuple(after or ()),
            group=group,
            reference_program=reference_program or program,
            delays_s=tuple(delays_s),
        )
        setattr(test, ATTRIBUTE, declaration)
        return test

    return declare


def _as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def declaration_of(test: Any) -> Declaration | None:
    """The declaration of a test, or None if it is no check."""
    found = getattr(test, ATTRIBUTE, None)
    return found if isinstance(found, Declaration) else None
