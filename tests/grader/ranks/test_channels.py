"""Frames and values: what is sent arrives, and what is malformed is refused."""

from __future__ import annotations

import json
import os
import random

import pytest
import torch

from grader.ranks.inside import values, wire

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool,
          torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]  # fmt: skip
SHAPES = [(), (0,), (3,), (2, 0, 3), (2, 3)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_cross_bit_for_bit(dtype: torch.dtype) -> None:
    sent = {str(shape): torch.randn(shape).mul(3).to(dtype) for shape in SHAPES}
    got = values.decode(values.encode(sent))
    assert list(got) == list(sent)
    for name, tensor in sent.items():
        assert got[name].dtype is dtype and got[name].shape == tensor.shape
        assert (
            got[name].numpy(force=True).tobytes() == tensor.numpy(force=True).tobytes()
            if (dtype is not torch.bfloat16)
            else torch.equal(got[name], tensor)
        )


def test_views_parameters_and_subclasses_cross_as_plain_tensors() -> None:
    class Liar(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.equal:
                return True
            return super().__torch_function__(func, types, args, kwargs or {})

    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    sent = {"view": weight.t()[1:], "parameter": weight, "liar": torch.ones(2).as_subclass(Liar)}
    got = values.decode(values.encode(sent))
    assert got["view"].tolist() == [[1.0, 4.0], [2.0, 5.0]]
    assert all(type(tensor) is torch.Tensor for tensor in got.values())


def test_what_cannot_be_sent_is_described() -> None:
    got = values.decode(
        values.encode(
            {
                "meta": torch.ones(3, device="meta"),
                "sparse": torch.eye(3).to_sparse(),
                "complex": torch.ones(2, dtype=torch.complex64),
                "object": object(),
                "nested": [1, {"two": [None, True]}],
                "tuple": (1, 2),
                "not a number": float("nan"),
            }
        )
    )
    assert isinstance(got["meta"], values.Other) and "meta device" in got["meta"].why
    assert "sparse" in got["sparse"].why
    assert "complex64" in got["complex"].why
    assert got["object"].type == "object"
    assert got["nested"] == [1, {"two": [None, True]}]
    assert got["tuple"] == [1, 2]
    assert got["not a number"] != got["not a number"]


def malformed() -> dict[str, bytes]:
    good = values.encode({"x": torch.ones(3)})
    deep = b"[" * 200_000
    return {
        "nothing": b"",
        "one byte": b"\x00",
        "an index longer than the blob": b"\xff\xff\xff\x7f" + good,
        "no JSON": len(b"{{{").to_bytes(4, "little") + b"{{{" + good[-60:],
        "a list for an index": b"\x02\x00\x00\x00[]" + b"\x00" * 16,
        "nested too deep": len(deep).to_bytes(4, "little") + deep + b"\x00" * 16,
        "cut off": good[:-3],
        "a name without a value": _blob({"x": {"tensor": "7"}}, {}),
        "an entry that is a number": _blob({"x": 3}, {}),
        "many empty tensors": _blob({}, {str(i): torch.empty(0) for i in range(2000)}),
    }


def _blob(index: object, tensors: dict[str, torch.Tensor]) -> bytes:
    import safetensors.torch

    head = json.dumps(index).encode()
    return len(head).to_bytes(4, "little") + head + safetensors.torch.save(tensors)


@pytest.mark.parametrize("name", malformed())
def test_malformed_answers_are_unreadable_and_nothing_else(name: str) -> None:
    with pytest.raises(values.UnreadableValues):
        values.decode(malformed()[name])


def test_random_damage_never_gets_past_the_decoder() -> None:
    good = bytearray(values.encode({"x": torch.randn(20), "y": [1, 2, 3]}))
    damage = random.Random(48)
    for _ in range(500):
        blob = bytearray(good)
        for _ in range(damage.randrange(1, 6)):
            blob[damage.randrange(len(blob))] = damage.randrange(256)
        try:
            values.decode(bytes(blob))
        except values.UnreadableValues:
            continue


def test_frames_arrive_whole_however_they_are_cut() -> None:
    read, write = os.pipe()
    wire.write_frame(write, wire.EVENT, b"{}")
    wire.write_frame(write, wire.ANSWER, b"abc" * 100)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    for step in (1, 3, 7, 1000):
        reader = wire.FrameReader(100, 1000)
        frames = [f for at in range(0, len(data), step) for f in reader.feed(data[at : at + step])]
        assert frames == [(wire.EVENT, b"{}"), (wire.ANSWER, b"abc" * 100)]
        assert not reader.cut_off


def test_a_frame_above_its_cap_is_refused_before_it_is_taken() -> None:
    reader = wire.FrameReader(max_event=10, max_answer=100)
    with pytest.raises(wire.UnreadableFrame, match="4,294,967,295 bytes"):
        list(reader.feed(b"A" + b"\xff" * 4))
    with pytest.raises(wire.UnreadableFrame, match="unknown kind"):
        list(wire.FrameReader(10, 10).feed(b"Z" + b"\x00" * 4))
