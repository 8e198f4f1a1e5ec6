"""What travels comes back equal, and nothing that comes can do more than raise ProtocolError."""

import contextlib
import struct
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.channel import messages
from gpusched.channel.framing import DTYPES, pack_arrays, plain_meta, unpack_arrays
from gpusched.channel.messages import ArraySpec, BatchHeader, decode_from_actor, decode_from_learner, encode_header
from gpusched.channel.values import Array
from gpusched.errors import ProtocolError, UsageError

MOST = 1 << 20

array_of = st.builds(
    lambda dtype, shape, seed: np.random.default_rng(seed).integers(0, 2, shape).astype(dtype),
    st.sampled_from(sorted(DTYPES)),
    st.lists(st.integers(0, 5), max_size=4),
    st.integers(0, 1000),
)
specs = st.builds(
    ArraySpec,
    st.text(max_size=5),
    st.sampled_from([*DTYPES, "|O", "<M8", ">f4", "", "|V8"]),
    st.lists(st.integers(0, 1 << 62) | st.integers(0, 4), max_size=5).map(tuple),
)
frames_given = st.lists(st.binary(max_size=64), max_size=4)


def buffers(arrays: list[Array]) -> list[memoryview]:
    return [memoryview(bytearray(array.tobytes())) for array in arrays]


@given(st.dictionaries(st.text(min_size=1, max_size=20).filter(lambda name: name.isprintable()), array_of, max_size=6))
def test_arrays_come_back_equal(arrays: dict[str, Array]) -> None:
    described, ready = pack_arrays(arrays, MOST)
    back = unpack_arrays(described, buffers(ready), MOST)
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()
        assert back[name].flags.aligned


@given(st.lists(specs, max_size=4), frames_given)
def test_lying_descriptions_raise_protocol_errors_only(lies: list[ArraySpec], frames: list[bytes]) -> None:
    with contextlib.suppress(ProtocolError):
        unpack_arrays(tuple(lies), [memoryview(frame) for frame in frames], MOST)


@given(st.binary(max_size=200))
def test_garbage_headers_raise_protocol_errors_only(data: bytes) -> None:
    for decode in (decode_from_actor, decode_from_learner):
        with contextlib.suppress(ProtocolError):
            decode(data)
    messages.foreign_protocol(data)


@given(st.data())
def test_mutated_headers_raise_protocol_errors_only(data: st.DataObject) -> None:
    header = BatchHeader(7, 3, (ArraySpec("x", "<f4", (2, 2)),), {"score": 1.5, "name": "a"})
    changed = bytearray(encode_header(header))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        found = decode_from_actor(bytes(changed))
        if isinstance(found, BatchHeader):
            unpack_arrays(found.arrays, [memoryview(bytes(16))], MOST)


def test_deeply_nested_garbage_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        decode_from_actor(b"\x91" * 60_000)


def test_a_shape_that_overflows_is_refused_before_memory_is_taken() -> None:
    for shape in ((1 << 62, 4), (0, 1 << 62, 1 << 62), (1 << 40,)):
        with pytest.raises(ProtocolError):
            unpack_arrays((ArraySpec("x", "<f8", shape),), [memoryview(b"")], MOST)


def test_bytes_that_do_not_match_the_shape_are_refused() -> None:
    with pytest.raises(ProtocolError, match="12 bytes came, its shape needs 16"):
        unpack_arrays((ArraySpec("x", "<f4", (4,)),), [memoryview(bytes(12))], MOST)


def test_two_arrays_of_one_name_are_refused() -> None:
    with pytest.raises(ProtocolError, match="one name"):
        unpack_arrays((ArraySpec("x", "|u1", (1,)),) * 2, [memoryview(b"a")] * 2, MOST)


def test_an_unaligned_frame_becomes_an_aligned_array() -> None:
    memory = memoryview(bytearray(b"_" + struct.pack("<4d", 1, 2, 3, 4)))
    array = unpack_arrays((ArraySpec("x", "<f8", (4,)),), [memory[1:]], MOST)["x"]
    assert array.flags.aligned
    assert array.tolist() == [1, 2, 3, 4]


def test_aligned_frames_are_not_copied() -> None:
    memory = memoryview(bytearray(32))
    array = unpack_arrays((ArraySpec("x", "<f8", (4,)),), [memory], MOST)["x"]
    memory[0:8] = struct.pack("<d", 5.0)
    assert array[0] == 5.0


def test_big_endian_and_strided_arrays_travel_as_little_endian_and_contiguous() -> None:
    given_array = np.arange(12, dtype=">i4").reshape(3, 4)[:, ::2]
    described, ready = pack_arrays({"x": given_array}, MOST)
    assert described[0].dtype == "<i4"
    assert unpack_arrays(described, buffers(ready), MOST)["x"].tolist() == given_array.tolist()


@pytest.mark.parametrize(
    "bad", [np.array([object()]), np.array(["text"]), np.array([1 + 2j]), np.zeros(2, "M8[s]"), np.zeros(2, "i4,f4")]
)
def test_what_cannot_travel_is_named(bad: Array) -> None:
    with pytest.raises(UsageError, match="'states'"):
        pack_arrays({"states": bad}, MOST)


def test_too_much_for_one_message_is_refused_at_the_sender() -> None:
    with pytest.raises(UsageError, match="over the 1048576"):
        pack_arrays({"x": np.zeros(MOST + 1, np.uint8)}, MOST)
    with pytest.raises(UsageError, match="257 arrays"):
        pack_arrays({str(i): np.zeros(1) for i in range(257)}, MOST)


def test_meta_takes_numbers_of_numpy_and_refuses_the_rest() -> None:
    assert plain_meta({"a": np.float32(0.5), "b": np.int64(3), "c": True, "d": "x"}) == {
        "a": 0.5,
        "b": 3,
        "c": True,
        "d": "x",
    }
    with pytest.raises(UsageError, match="meta\\['a'\\]: list"):
        plain_meta({"a": [1]})


@pytest.mark.parametrize("value", [1 << 70, "x" * (65 << 10), "\ud800"])
def test_meta_that_no_header_can_hold_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError):
        encode_header(BatchHeader(1, 0, (), {"a": value}))  # type: ignore[dict-item]


def test_a_hello_of_another_protocol_is_known_whatever_else_it_says() -> None:
    hello = msgspec.msgpack.encode(["hello", 99, {"all": "new"}])
    with pytest.raises(ProtocolError):
        decode_from_actor(hello)
    assert messages.foreign_protocol(hello) == 99


def test_the_host_is_little_endian() -> None:
    assert sys.byteorder == "little", "frames are read in place as little-endian"
