"""What the ledger of a real run says."""

from __future__ import annotations

from tests.grader.ranks.conftest import TOTAL_LINE

CALLS = {
    "all_reduce": ("dist.all_reduce(x, op=dist.ReduceOp.AVG)", {"reduce_op": "avg"}),
    "broadcast": ("dist.broadcast(x, 1)", {"root": 1}),
    "reduce": ("dist.reduce(x, 1, op=dist.ReduceOp.MAX)", {"root": 1, "reduce_op": "max"}),
    "all_gather": ("dist.all_gather([torch.zeros(3), torch.zeros(3)], x)", {}),
    "gather": (
        "dist.gather(x, [x.clone(), x.clone()] if here.rank == 0 else None, 0)",
        {"root": 0},
    ),
    "scatter": (
        "dist.scatter(x, [x.clone(), x.clone()] if here.rank == 1 else None, 1)",
        {"root": 1},
    ),
    "all_to_all": ("dist.all_to_all_single(torch.zeros(4), torch.ones(4))", {}),
    "barrier": ("dist.barrier()", {}),
}
SINGLE = {
    "all_gather": (
        "getattr(dist, 'all_gather_single', dist.all_gather_into_tensor)(torch.zeros(6), x)",
        {"shapes": ((3,),)},
    ),
    "reduce_scatter": (
        "getattr(dist, 'reduce_scatter_single', dist.reduce_scatter_tensor)"
        "(torch.zeros(2), torch.ones(4))",
        {"shapes": ((4,),), "reduce_op": "sum"},
    ),
}


def test_every_collective_is_named_as_the_field_names_it(run) -> None:
    for op, (call, fields) in [*CALLS.items(), *SINGLE.items()]:
        outcome = run(f"x = here.inputs['x']\n{call}")
        for rank in outcome.ranks:
            (entry,) = rank.entries
            assert entry.op == op
            assert entry.ended is not None and not entry.is_async
            for name, value in fields.items():
                assert getattr(entry, name) == value, (op, name)


def test_an_entry_has_the_learners_line_and_its_size(run) -> None:
    outcome = run("here.submission.total(here.inputs['x'])")
    (entry,) = outcome.ranks[1].entries
    assert entry.where == f"work.py:{TOTAL_LINE}"
    assert (entry.shapes, entry.dtype, entry.bytes) == (((3,),), "float32", 12)
    assert entry.members == (0, 1)


def test_collectives_in_backward_hooks_and_in_fsdp_are_seen(run) -> None:
    body = """
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.device_mesh import init_device_mesh
        layer = torch.nn.Linear(4, 4)
        layer.weight.register_hook(lambda g: dist.all_reduce(g))
        layer(torch.ones(1, 4)).sum().backward()
        sharded = torch.nn.Linear(4, 4)
        fully_shard(sharded, mesh=init_device_mesh("cpu", (2,)))
        sharded(torch.ones(1, 4)).sum().backward()
    """
    outcome = run(body)
    ops = [entry.op for entry in outcome.ranks[0].entries]
    assert ops[0] == "all_reduce"
    assert "all_gather" in ops and "reduce_scatter" in ops


def test_a_handle_nobody_waited_on_shows(run) -> None:
    outcome = run("dist.all_reduce(here.inputs['x'], async_op=True)")
    (entry,) = outcome.ranks[0].entries
    assert entry.is_async and not entry.waited and not entry.arrives


def test_sends_tell_blocking_from_asynchronous(run) -> None:
    body = """
        x = here.inputs["x"]
        if here.rank == 0:
            dist.send(x, 1)
            dist.isend(x, 1).wait()
        else:
            dist.recv(x, 0)
            dist.irecv(x, 0).wait()
    """
    outcome = run(body)
    for rank, peer in ((0, 1), (1, 0)):
        entries = outcome.ranks[rank].entries
        assert [entry.is_async for entry in entries] == [False, True]
        assert [entry.peer for entry in entries] == [peer, peer]


def test_a_flood_of_collectives_is_cut_and_ends(run) -> None:
    outcome = run("for _ in range(12_000): dist.barrier()", seconds=60.0)
    assert outcome.ending.value == "answered"
    assert all(rank.ledger.is_cut for rank in outcome.ranks)


def test_a_rank_with_threads_of_its_own_is_never_proved_stuck(run) -> None:
    body = """
        import threading
        if here.rank == 0:
            thread = threading.Thread(target=lambda: (time.sleep(0.3), dist.send(torch.ones(1), 1)))
            thread.start()
            thread.join()
        else:
            dist.recv(torch.ones(1), 0)
    """
    assert run(body).ending.value == "answered"
