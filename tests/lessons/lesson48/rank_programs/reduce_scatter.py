"""The exercise "reduce-scatter": this rank's shard of the mean of a gradient."""

from __future__ import annotations

from typing import Any

from . import models


def reduce_scatter(here: Any) -> dict[str, Any]:
    """This rank's shard of every `gradients/<name>`."""
    shards: dict[str, Any] = {}
    for key, value in here.inputs.items():
        family, _, name = key.partition("/")
        if family != "gradients":
            continue
        is_strided = name in here.inputs.get("strided", ())
        grad = models.strided(value) if is_strided else value.clone()
        shards[f"shards/{name}"] = here.submission.reduce_scatter_grad(grad, here.world_size)
    return shards
