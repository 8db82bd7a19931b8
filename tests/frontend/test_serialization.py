"""Saving and loading: what is kept, and that damaged or hostile files are refused."""

import collections
import io
import json
import math
import pathlib
import struct
import zipfile

import numpy as np
import pytest

import treadle
from treadle.serialization import FormatError, load, load_safetensors, save, save_safetensors

Point = collections.namedtuple("Point", "x")
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def round_trip(obj, **options):
    file = io.BytesIO()
    save(obj, file)
    file.seek(0)
    return load(file, **options)


# -------------------------------------------------------------------- plain objects


@pytest.mark.parametrize(
    "obj",
    [
        None, True, 0, -(2**62), 2**200, -(2**63), 1.5, 0.1, -0.0, 5e-324, math.inf, -math.inf, 1 + 2j,
        complex(math.inf, 0), "text", "ünï\x00\ud800", b"\x00\xff", b"", [], [1, [2.0, None]], (), (1, (2,)), {1, "a"},
        frozenset({2}), {}, {"a": 1, 2: (3,), (4, None): "b", None: 5, True: 6, 1.5: 7},
        collections.OrderedDict(b=1, a=2), collections.Counter("aab"),
    ],
    ids=repr,
)  # fmt: skip
def test_plain_objects(obj):
    got = round_trip(obj)
    assert got == obj
    assert type(got) is type(obj)
    assert repr(got) == repr(obj)


def test_nan_and_types_of_numbers():
    assert math.isnan(round_trip(math.nan))
    assert [type(value) for value in round_trip([1, 1.0, True])] == [int, float, bool]


def test_sizes_dtypes_and_devices():
    got = round_trip([treadle.zeros(2, 3).shape, treadle.bfloat16, treadle.device("cpu")])
    assert tuple(got[0]) == (2, 3)
    assert isinstance(got[0], treadle.Size)
    assert got[1] == treadle.bfloat16
    assert got[2] == treadle.device("cpu")


def test_metadata_of_an_ordered_dict():
    state = collections.OrderedDict(a=1)
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    assert round_trip(state)._metadata == {"": {"version": 1}}


# -------------------------------------------------------------------- tensors


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_keep_their_bits(dtype):
    values = treadle.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 100.0]]).to(getattr(treadle, dtype))
    got = round_trip(values)
    assert got.dtype == values.dtype
    assert tuple(got.shape) == (2, 3)
    np.testing.assert_array_equal(got.to(treadle.float64).numpy(), values.to(treadle.float64).numpy())


def test_shapes():
    for shape in ((), (0,), (2, 0, 3), (1,), (2, 3, 4)):
        values = treadle.arange(math.prod(shape)).reshape(shape)
        got = round_trip(values)
        assert tuple(got.shape) == shape
        np.testing.assert_array_equal(got.numpy(), values.numpy())


def test_special_values():
    got = round_trip(treadle.tensor([math.nan, math.inf, -0.0])).numpy()
    np.testing.assert_array_equal(got, [math.nan, math.inf, 0.0])
    assert np.signbit(got[2])


def test_requires_grad_and_parameters():
    p = treadle.nn.Parameter(treadle.tensor([1.0, 2.0]))
    frozen = treadle.nn.Parameter(treadle.tensor([1.0]), requires_grad=False)
    leaf = treadle.ones(2, requires_grad=True)
    got = round_trip([p, frozen, leaf, (leaf * 2), treadle.ones(1)])
    assert [isinstance(t, treadle.nn.Parameter) for t in got] == [True, True, False, False, False]
    assert [t.requires_grad for t in got] == [True, False, True, True, False]
    assert all(t.is_leaf for t in got)
    (got[0] * 3).sum().backward()
    np.testing.assert_array_equal(got[0].grad.numpy(), [3, 3])


def test_one_tensor_twice_stays_one():
    t = treadle.ones(2)
    a, b = round_trip([t, {"again": t}])
    assert a is b["again"]


def test_detached_aliases_share_memory():
    p = treadle.nn.Parameter(treadle.zeros(3))
    a, b = round_trip({"a": p.detach(), "b": p.detach()}).values()
    a.add_(1.0)
    np.testing.assert_array_equal(b.numpy(), [1, 1, 1])


def test_views_of_one_storage_stay_views():
    base = treadle.arange(12).to(treadle.float32).reshape(3, 4)
    saved = [base, base[1], base.t(), base[:, 2], base.reshape(-1)[5:7]]
    want = [t.numpy().copy() for t in saved]
    got = round_trip(saved)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g.numpy(), w)
    got[0][1, 2] = 100.0
    np.testing.assert_array_equal(got[1].numpy(), [4, 5, 100, 7])
    assert float(got[2][2, 1]) == 100.0
    assert float(got[3][1]) == 100.0
    np.testing.assert_array_equal(got[4].numpy(), [5, 100])
    got[4].zero_()
    assert float(got[0][1, 1]) == 0.0


def test_views_without_their_base():
    base = treadle.arange(100)
    file = io.BytesIO()
    save([base[10:14], base[12:16]], file)
    assert len(_members(file.getvalue())["tensors.safetensors"]) < 6 * 8 + 200  # the rest of the base is not in it
    a, b = load(io.BytesIO(file.getvalue()))
    a.fill_(7)
    np.testing.assert_array_equal(b.numpy(), [7, 7, 14, 15])


def test_strided_views_without_their_base():
    base = treadle.arange(24).reshape(4, 6)
    a, b = round_trip([base[1:3, 1:4], base[:, 2]])
    np.testing.assert_array_equal(a.numpy(), [[7, 8, 9], [13, 14, 15]])
    a.fill_(0)
    np.testing.assert_array_equal(b.numpy(), [2, 0, 0, 20])


def test_lone_views_and_expanded_tensors():
    base = treadle.arange(1000).reshape(10, 100)
    file = io.BytesIO()
    save(base.t()[3:5], file)
    assert len(file.getvalue()) < 2000
    file.seek(0)
    np.testing.assert_array_equal(load(file).numpy(), base.numpy().T[3:5])
    one = treadle.ones(1)
    small, wide = round_trip([one, one.expand(3)])
    np.testing.assert_array_equal(wide.numpy(), [1, 1, 1])
    assert tuple(small.shape) == (1,)


def test_loaded_tensors_share_nothing_with_the_saved():
    t = treadle.zeros(3)
    got = round_trip(t)
    got.add_(1.0)
    np.testing.assert_array_equal(t.numpy(), [0, 0, 0])


def test_state_of_a_training_run():
    p = treadle.nn.Parameter(treadle.tensor([1.0, 2.0]))
    optimizer = treadle.optim.Adam([p])
    scheduler = treadle.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    p.grad = treadle.ones(2)
    optimizer.step()
    scheduler.step()
    got = round_trip({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()})
    assert got["scheduler"] == scheduler.state_dict()
    assert got["optimizer"]["param_groups"] == optimizer.state_dict()["param_groups"]
    assert float(got["optimizer"]["state"][0]["step"]) == 1.0


# -------------------------------------------------------------------- files


def test_paths_and_files(tmp_path):
    obj = {"a": treadle.arange(5), "b": [1, 2]}
    for target in (tmp_path / "a.pt", str(tmp_path / "b.pt")):
        save(obj, target)
        assert load(target)["b"] == [1, 2]
        np.testing.assert_array_equal(load(target, mmap=True)["a"].numpy(), np.arange(5))
    with open(tmp_path / "c.pt", "wb") as file:
        save(obj, file)
    with open(tmp_path / "c.pt", "rb") as file:
        assert load(file, weights_only=True)["b"] == [1, 2]
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.pt")
    with pytest.raises(ValueError, match="path"):
        load(io.BytesIO(), mmap=True)
    with pytest.raises(TypeError, match="path or a binary file"):
        load(3)


def test_streams_that_cannot_seek():
    class Pipe(io.RawIOBase):
        def __init__(self, data):
            self.data = io.BytesIO(data)

        def readable(self):
            return True

        def read(self, size=-1):
            return self.data.read(size)

    file = io.BytesIO()
    save([treadle.ones(2)], file)
    np.testing.assert_array_equal(load(Pipe(file.getvalue()))[0].numpy(), [1, 1])


def test_mapped_memory_is_not_written_back(tmp_path):
    path = tmp_path / "m.pt"
    save(treadle.zeros(1000), path)
    load(path, mmap=True).add_(1.0)
    np.testing.assert_array_equal(load(path).numpy(), np.zeros(1000))


def test_files_are_the_same_every_time_and_data_is_aligned():
    first, second = io.BytesIO(), io.BytesIO()
    obj = {"a": treadle.ones(3, dtype=treadle.bool), "b": treadle.ones(3, dtype=treadle.float64)}
    save(obj, first)
    save(obj, second)
    assert first.getvalue() == second.getvalue()
    assert first.getvalue().index(np.ones(3).tobytes()) % 64 == 0


def test_map_location():
    seen = []

    def keep(storage, location):
        seen.append((tuple(storage.shape), location))
        return storage

    for where in ("cpu", treadle.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: None, keep):
        np.testing.assert_array_equal(round_trip(treadle.ones(2, 3), map_location=where).numpy(), np.ones((2, 3)))
    assert seen == [((6,), "cpu")]

    def broken(storage, location):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        round_trip(treadle.ones(2), map_location=broken)


# -------------------------------------------------------------------- what cannot be saved


@pytest.mark.parametrize(
    "obj",
    [lambda: 1, object(), Point(1), int, np.float64(1.0), np.ones(2), {"a": [print]}, slice(1)],
    ids=lambda obj: type(obj).__name__,
)
def test_other_objects_are_refused(obj, tmp_path):
    path = tmp_path / "x.pt"
    save(1, path)
    with pytest.raises(TypeError, match="cannot save"):
        save(obj, path)
    assert load(path) == 1


def test_modules_are_refused():
    with pytest.raises(TypeError, match="state_dict"):
        save(treadle.nn.Linear(2, 2), io.BytesIO())


def test_cycles_and_depth_are_refused():
    loop = []
    loop.append([loop])
    with pytest.raises(ValueError, match="contains itself"):
        save(loop, io.BytesIO())
    deep = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        save(deep, io.BytesIO())
    shared = [1]
    assert round_trip([shared, shared]) == [[1], [1]]
    deep = []
    for _ in range(99):
        deep = [deep]
    assert round_trip(deep) == deep


# -------------------------------------------------------------------- damaged and hostile files


def _members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _archive(members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


@pytest.fixture(scope="module")
def good():
    file = io.BytesIO()
    save({"a": treadle.arange(6).reshape(2, 3), "b": [treadle.ones(4), "text", 1.5]}, file)
    return file.getvalue()


def refused(data):
    with pytest.raises(FormatError) as error:
        load(io.BytesIO(data))
    return str(error.value)


def test_truncated_files(good, tmp_path):
    for size in [*range(0, len(good), 7), len(good) - 1]:
        refused(good[:size])
    path = tmp_path / "t.pt"
    path.write_bytes(good[:-30])
    with pytest.raises(FormatError):
        load(path, mmap=True)


def test_flipped_bytes_never_crash(good):
    want = load(io.BytesIO(good))
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(good), 300):
        data = bytearray(good)
        data[position] ^= int(rng.integers(1, 256))
        try:
            got = load(io.BytesIO(bytes(data)))
        except FormatError:
            continue
        np.testing.assert_array_equal(got["a"].numpy(), want["a"].numpy())  # a byte that has no meaning


def test_flipped_bytes_of_the_parts_never_crash(good):
    # Inside a sound archive, so that checksums do not catch it first.
    members = _members(good)
    rng = np.random.default_rng(0)
    for name, content in members.items():
        for position in rng.integers(0, min(len(content), 600), 300):
            data = bytearray(content)
            data[position] = int(rng.integers(0, 128))
            try:
                load(io.BytesIO(_archive({**members, name: bytes(data)})))
            except (FormatError, RuntimeError):
                continue


def test_compressed_members_and_bombs(good):
    assert "compressed" in refused(_archive(_members(good), zipfile.ZIP_DEFLATED))
    bomb = {"treadle.json": b"{}", "tensors.safetensors": b"\0" * 10_000_000}
    assert "compressed" in refused(_archive(bomb, zipfile.ZIP_DEFLATED))


def test_lying_member_sizes(good):
    central = good.rindex(b"PK\x01\x02")
    data = bytearray(good)
    data[central + 20 : central + 28] = struct.pack("<II", 2**31, 2**31)
    refused(bytes(data))


def _with_header(good, change):
    members = _members(good)
    blob = members["tensors.safetensors"]
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    members["tensors.safetensors"] = len(text).to_bytes(8, "little") + text + blob[8 + length :]
    return _archive(members)


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["0"].update(shape=[2**40]),
        lambda h: h["0"].update(shape=[-6]),
        lambda h: h["0"].update(shape=[2**63, 2**63]),
        lambda h: h["0"].update(shape=[1] * 100 + [6]),
        lambda h: h["0"].update(shape="6"),
        lambda h: h["0"].update(dtype="PICKLE"),
        lambda h: h["0"].update(dtype="F16"),
        lambda h: h["0"].update(data_offsets=[0, 2**50]),
        lambda h: h["0"].update(data_offsets=[8, 56]),
        lambda h: h["0"].update(data_offsets=[0.0, 48.0]),
        lambda h: h["0"].update(data_offsets=None),
        lambda h: h.pop("1"),
        lambda h: h.update(x=1),
        lambda h: h.update(x={"dtype": "F32", "shape": [], "data_offsets": [0, 4]}),
    ],
)
def test_lying_tensor_headers(good, change):
    refused(_with_header(good, change))


def test_lying_header_length(good):
    members = _members(good)
    for length in (2**63, 2**20, 10):
        blob = length.to_bytes(8, "little") + members["tensors.safetensors"][8:]
        refused(_archive({**members, "tensors.safetensors": blob}))
    for blob in (b"", b"\0" * 7, (2).to_bytes(8, "little") + b"[]"):
        refused(_archive({**members, "tensors.safetensors": blob}))


def _with_tree(good, change):
    members = _members(good)
    tree = json.loads(members["treadle.json"])
    changed = change(tree)
    text = changed if isinstance(changed, bytes) else json.dumps(tree).encode()
    return _archive({**members, "treadle.json": text})


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update(format="x"),
        lambda t: t.update(version=99),
        lambda t: t.update(root={"pickle": "gASVAAA="}),
        lambda t: t.update(root={"list": [], "tuple": []}),
        lambda t: t.update(root={}),
        lambda t: t.update(root=[1]),
        lambda t: t.update(root={"tensor": 2}),
        lambda t: t.update(root={"tensor": -1}),
        lambda t: t.update(root={"tensor": True}),
        lambda t: t.update(root={"list": 3}),
        lambda t: t.update(root={"list": "abc"}),
        lambda t: t.update(root={"dict": [[1, 2, 3]]}),
        lambda t: t.update(root={"dict": [[{"list": []}, 1]]}),
        lambda t: t.update(root={"set": [{"list": []}]}),
        lambda t: t.update(root={"dtype": "Tensor"}),
        lambda t: t.update(root={"dtype": "load"}),
        lambda t: t.update(root={"size": [-1]}),
        lambda t: t.update(root={"bytes": "?"}),
        lambda t: t.update(root={"int": "zz"}),
        lambda t: t.update(root={"float": "1.0"}),
        lambda t: t.update(root={"complex": [1.0]}),
        lambda t: t.update(storages={}),
        lambda t: t.update(storages=[]),
        lambda t: t.update(storages={"0": 1, "1": 2}),
        lambda t: t.update(tensors=None),
        lambda t: t["tensors"][0].update(storage="9"),
        lambda t: t["tensors"][0].update(shape=[2, 4]),
        lambda t: t["tensors"][0].update(shape=[2**40, 3], stride=[0, 1]),
        lambda t: t["tensors"][0].update(stride=[3]),
        lambda t: t["tensors"][0].update(stride=[3, 2]),
        lambda t: t["tensors"][0].update(stride=[-3, 1]),
        lambda t: t["tensors"][0].update(offset=1),
        lambda t: t["tensors"][0].update(offset=2**63),
        lambda t: t["tensors"][0].update(requires_grad=True),
        lambda t: t["tensors"][0].update(parameter=1),
        lambda t: t["tensors"][0].pop("shape"),
        lambda t: b"[" * 100_000,
        lambda t: b'{"a":' * 50_000,
        lambda t: b"9" * 10_000,
        lambda t: b"\xff\xfe",
        lambda t: b"",
        lambda t: b"null",
    ],
)
def test_lying_trees(good, change):
    refused(_with_tree(good, change))


def test_deep_trees(good):
    def change(tree):
        root = None
        for _ in range(450):
            root = {"list": [root]}
        tree["root"] = root

    refused(_with_tree(good, change))


def test_other_members(good):
    members = _members(good)
    refused(_archive({**members, "more": b""}))
    refused(_archive({"treadle.json": members["treadle.json"]}))
    refused(_archive({}))


def test_other_formats(tmp_path):
    assert "torch.save" in refused(_archive({"archive/data.pkl": b"\x80\x02.", "archive/version": b"3"}))
    assert "pickle" in refused(b"\x80\x02}q\x00.")
    save_safetensors({"a": treadle.ones(2)}, tmp_path / "a.safetensors")
    assert "load_safetensors" in refused((tmp_path / "a.safetensors").read_bytes())
    refused(b"something else altogether")
    with pytest.raises(ValueError, match="never unpickles"):
        load(io.BytesIO(), pickle_module=json)


# -------------------------------------------------------------------- safetensors files


def test_safetensors(tmp_path):
    path = pathlib.Path(tmp_path / "w.safetensors")
    tensors = {name: treadle.arange(6).reshape(2, 3).t().to(getattr(treadle, name)) for name in DTYPES}
    tensors["scalar"], tensors["empty"] = treadle.tensor(2.5), treadle.zeros(0, 3)
    save_safetensors(tensors, path, metadata={"by": "me"})
    got = load_safetensors(path, device="cpu")
    assert set(got) == set(tensors)
    for name, tensor in tensors.items():
        assert got[name].dtype == tensor.dtype
        assert tuple(got[name].shape) == tuple(tensor.shape)
        np.testing.assert_array_equal(got[name].to(treadle.float64).numpy(), tensor.to(treadle.float64).numpy())
    with pytest.raises(TypeError):
        save_safetensors({"a": 1}, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError):
        load_safetensors(path)


def test_safetensors_of_the_reference_implementation():
    reference = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([True, False]), "c": np.array(3)}
    got = load_safetensors(io.BytesIO(reference.save(arrays)))
    for name, array in arrays.items():
        np.testing.assert_array_equal(got[name].numpy(), array)
    file = io.BytesIO()
    save_safetensors(got, file)
    back = reference.load(file.getvalue())
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
