"""Memory of training states: what misunderstanding gives these gigabytes?

Totals of different mistakes collide (4 + 4 + 8 and 2 + 2 + 12 bytes a parameter are both
16), so the parts are explained first, over all calls together; only where all parts are
right, the totals are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from grader.checks.evidence import Evidence
from grader.checks.families.memory_calls import STATE_BYTES, Answer, Bytes, Call, agree, close
from grader.checks.families.memory_stages import explain_stages

_GIB = 1e9 / 2**30
_UNITS = (
    ("gib-not-gb", _GIB), ("bits-not-bytes", 8.0), ("bits-not-bytes", 1 / 8),
    *(("wrong-unit", 10.0**power) for power in (-9, -6, -3, 3, 6, 9)),
)  # fmt: skip
_FEWEST_YES_OR_NO = 4
"""A yes or no is right by luck half of the time."""

Rule = Callable[[Call], Bytes]


def explain(evidence: Evidence) -> str | None:
    """The misunderstanding that explains all answers, or None.

    Reads `extra["calls"]` (the arguments of every call, as a dict) with the answers in the
    same order in `actual[0]`; or the arguments of a single call in `extra` itself.
    """
    answers = _answers(evidence)
    if not answers:
        return None
    if all(agree(a.parts, a.call.parts()) for a in answers):
        codes = set(_explain_totals(answers))
    else:
        codes = set(_explain_parts(answers))
    return codes.pop() if len(codes) == 1 else None


def _answers(evidence: Evidence) -> list[Answer]:
    """Empty where an answer is no dict, or where what is right is not known."""
    several = evidence.extra.get("calls")
    arguments = [evidence.extra] if several is None else several
    said: Any = [evidence.actual[0]] if several is None else evidence.actual[0]
    fields = Call.__dataclass_fields__
    if not isinstance(said, list) or len(said) != len(arguments):
        return []
    if not all("params_billions" in given for given in arguments):
        return []
    calls = [Call(**{k: v for k, v in given.items() if k in fields}) for given in arguments]
    if not all(call.is_known for call in calls) or not all(isinstance(s, dict) for s in said):
        return []
    return [Answer(call, answer) for call, answer in zip(calls, said, strict=True)]


# Parts


def _explain_parts(answers: list[Answer]) -> Iterator[str]:
    stages = explain_stages(answers)
    if stages:
        yield stages
    for code, unit in _UNITS:
        if all(agree(a.parts, tuple(p * unit for p in a.call.parts())) for a in answers):
            yield code
    for code, rule in _rules(answers):
        if all(agree(a.parts, a.call.parts(rule(a.call))) for a in answers):
            yield code


def _rules(answers: list[Answer]) -> Iterator[tuple[str, Rule]]:
    """(code, bytes a parameter); only those that these answers can tell from others."""
    optimizers = {a.call.optimizer for a in answers}
    sizes = {a.call.precision_bytes for a in answers}
    for factor in (8.0, 1 / 8):
        yield "bits-not-bytes", _of_size(scaled_by=factor)
    if len(sizes) > 1:
        for fixed in (1.0, 2.0, 4.0):
            yield "precision-ignored", _of_size(fixed=fixed)
    yield "gradients-in-fp32", lambda c: (c.size, 4.0, c.states)
    yield "weights-in-fp32", lambda c: (4.0, c.size, c.states)
    yield "gradients-forgotten", lambda c: (c.size, 0.0, c.states)
    if "adam_master" in optimizers:
        yield "master-copy-miscounted", _copy_among_weights
        yield "mixed-precision-as-fp32", _all_in_fp32
        yield "master-copy-miscounted", _with_states(adam_master=lambda c: 8 + c.size)
        for adam, master in ((8, 8), (12, 8), (8, 16), (12, 16)):
            yield "master-copy-miscounted", _with_fixed_states(adam=adam, adam_master=master)
    if "adam" in optimizers:
        yield "master-copy-miscounted", _with_fixed_states(adam=12)
        for master in (8, 12):
            yield "one-moment", _with_fixed_states(adam=4, adam_master=master)
    yield "moments-in-low-precision", lambda c: (c.size, c.size, c.states * c.size / 2)
    yield "moments-in-low-precision", _low_moments(lambda _c: 4.0)
    yield "moments-in-low-precision", _low_moments(lambda c: c.size)
    for momentum in (4, 8):
        yield "sgd-counts-momentum", _with_fixed_states(sgd=4, sgd_momentum=momentum)
    yield "momentum-forgotten", _with_fixed_states(sgd_momentum=0)
    if len(optimizers) > 1:
        yield "optimizer-forgotten", lambda c: (c.size, c.size, 0.0)
        for always in (4.0, 8.0, 12.0):
            yield "optimizer-ignored", _with_states_always(always)


def _of_size(fixed: float | None = None, scaled_by: float = 1.0) -> Rule:
    def rule(call: Call) -> Bytes:
        size = call.size * scaled_by if fixed is None else fixed
        return (size, size, call.states)

    return rule


def _with_states(**states: Callable[[Call], float]) -> Rule:
    def rule(call: Call) -> Bytes:
        own = states[call.optimizer](call) if call.optimizer in states else call.states
        return (call.size, call.size, own)

    return rule


def _with_fixed_states(**states: float) -> Rule:
    table = STATE_BYTES | states
    return lambda call: (call.size, call.size, table[call.optimizer])


def _with_states_always(always: float) -> Rule:
    return lambda call: (call.size, call.size, always)


def _low_moments(copy: Callable[[Call], float]) -> Rule:
    return _with_states(
        adam=lambda c: 2 * c.size,
        adam_master=lambda c: 2 * c.size + copy(c),
        sgd_momentum=lambda c: c.size,
    )


def _copy_among_weights(call: Call) -> Bytes:
    if call.optimizer != "adam_master":
        return call.each
    return (call.size + 4, call.size, 8.0)


def _all_in_fp32(call: Call) -> Bytes:
    return (4.0, 4.0, 8.0) if call.optimizer == "adam_master" else call.each


# Totals


def _explain_totals(answers: list[Answer]) -> Iterator[str]:
    """What is made of parts that are all right."""
    for code, key, right, predict in _TOTALS:
        is_wrong = any(not close(a.number(key), right(a.call)) for a in answers)
        if is_wrong and all(close(a.number(key), predict(a.call)) for a in answers):
            yield code
    if len(answers) < _FEWEST_YES_OR_NO:
        return
    for code, total in _FITS:
        said = [a.said.get("fits_on_80gb") for a in answers]
        predicted = [total(a.call) <= 80 for a in answers]
        if said == predicted != [a.call.total() <= 80 for a in answers]:
            yield code


def _of_all(call: Call) -> float:
    return call.total() * call.num_gpus


_TOTALS: tuple[tuple[str, str, Callable[[Call], float], Callable[[Call], float]], ...] = (
    ("total-not-per-gpu", "per_gpu_total_gb", Call.total, _of_all),
    ("total-not-per-gpu", "per_gpu_total_gb", Call.total, lambda c: c.total(stage=0)),
    ("divided-at-every-stage", "per_gpu_total_gb", Call.total, lambda c: c.total(stage=3)),
    ("gib-not-gb", "per_gpu_total_gb", Call.total, lambda c: c.total() * _GIB),
    ("total-of-one-gpu", "total_across_gpus_gb", _of_all, Call.total),
    ("total-of-one-gpu", "total_across_gpus_gb", _of_all, lambda c: c.total(stage=0)),
)
"""Code, key, what is right, what the misunderstanding gives."""
_FITS: tuple[tuple[str, Callable[[Call], float]], ...] = (
    ("gib-not-gb", lambda c: c.total() * _GIB),
    ("total-not-per-gpu", _of_all),
)
