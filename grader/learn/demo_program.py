"""The rank program of the training demo. Shipped to ranks as text; imports only torch.

A small classifier is trained with the learner's own process group, wrapper, gradient
averaging and sharding. Ranks start from different weights and see different data, so
nothing agrees unless the learner's code makes it.
"""

import torch
import torch.distributed as dist
from torch import nn

LEARNING_RATE = 0.5


def train(here):
    """Train, then shard and gather. Returns losses, sums, norms and differences of one rank."""
    wishes, work = here.inputs, here.submission
    work.init_process_group(here.rank, here.world_size, master_port=here.master_port)
    torch.manual_seed(wishes["seed"] + here.rank)
    model = build(wishes)
    wrapped = work.MinimalDDP(model, here.world_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    losses, norm, difference = [], 0.0, 0.0
    for step in range(wishes["num_steps"]):
        reference = single_process_gradients(model, wishes, here.world_size, step)
        optimizer.zero_grad()
        loss = loss_on(wrapped, wishes, here.rank, step)
        loss.backward()
        norm = wrapped.sync_grads()
        losses.append(float(loss.detach()))
        difference = max(difference, largest_difference(model, reference))
        optimizer.step()

    round_trip = work.fsdp_round_trip_sketch(model, here.world_size, here.rank)
    dist.barrier()
    work.shutdown_process_group()
    return {
        "losses": losses,
        "param_sum": float(sum(p.detach().double().sum() for p in model.parameters())),
        "grad_norm": norm,
        "difference": difference,
        "round_trip": round_trip,
    }


def build(wishes):
    """The model: two linear layers with a ReLU between them."""
    return nn.Sequential(
        nn.Linear(wishes["in_dim"], wishes["hidden"]),
        nn.ReLU(),
        nn.Linear(wishes["hidden"], wishes["out_dim"]),
    )


def batch(wishes, rank, step):
    """Rank `rank`'s inputs [batch, in] and labels [batch] of a step."""
    generator = torch.Generator().manual_seed(10_000 * wishes["seed"] + 100 * step + rank)
    size = wishes["batch_size"]
    features = torch.randn(size, wishes["in_dim"], generator=generator)
    # There is something to learn: the labels follow from the features, the same on all ranks.
    teacher = torch.Generator().manual_seed(wishes["seed"])
    directions = torch.randn(wishes["in_dim"], wishes["out_dim"], generator=teacher)
    return features, (features @ directions).argmax(dim=1)


def loss_on(model, wishes, rank, step):
    """Mean cross-entropy on one rank's batch."""
    features, labels = batch(wishes, rank, step)
    return nn.functional.cross_entropy(model(features), labels)


def single_process_gradients(model, wishes, world_size, step):
    """What one process would get from all ranks' batches together, with the same weights."""
    features, labels = zip(*(batch(wishes, rank, step) for rank in range(world_size)), strict=True)
    loss = nn.functional.cross_entropy(model(torch.cat(features)), torch.cat(labels))
    return torch.autograd.grad(loss, list(model.parameters()))


def largest_difference(model, reference):
    """The largest absolute difference between the model's gradients and `reference`."""
    pairs = zip(model.parameters(), reference, strict=True)
    return max(float((p.grad - g).abs().max()) for p, g in pairs if p.grad is not None)
