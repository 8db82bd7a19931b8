"""Who shares memory with whom, and what a write through one tensor does to the others."""

import gc

import numpy as np
import pytest

import treadle as T


def matrix(rows=4, cols=6):
    """A tensor and an array with the same elements 0, 1, 2, ..."""
    a = np.arange(rows * cols, dtype=np.float32).reshape(rows, cols)
    return T.arange(rows * cols, dtype=T.float32).reshape(rows, cols), a


VIEWS = {
    "slice": (lambda x: x[1:3], lambda a: a[1:3]),
    "steps": (lambda x: x[::2, 1::3], lambda a: a[::2, 1::3]),
    "select": (lambda x: x[2], lambda a: a[2]),
    "select last": (lambda x: x[-1, -2], lambda a: a[-1, -2:-1].reshape(())),
    "column": (lambda x: x.select(1, 3), lambda a: a[:, 3]),
    "transpose": (lambda x: x.T, lambda a: a.T),
    "permute": (lambda x: x.permute(1, 0), lambda a: a.transpose(1, 0)),
    "reshape": (lambda x: x.reshape(3, 8), lambda a: a.reshape(3, 8)),
    "view": (lambda x: x.view(-1), lambda a: a.reshape(-1)),
    "flatten": (lambda x: x.flatten(), lambda a: a.reshape(-1)),
    "unflatten": (lambda x: x.unflatten(1, (2, 3)), lambda a: a.reshape(4, 2, 3)),
    "unsqueeze": (lambda x: x.unsqueeze(1), lambda a: a[:, None]),
    "squeeze": (lambda x: x[:1].squeeze(0), lambda a: a[0]),
    "narrow": (lambda x: x.narrow(1, 2, 3), lambda a: a[:, 2:5]),
    "diagonal": (lambda x: x.diagonal(1), lambda a: np.lib.stride_tricks.as_strided(a[0, 1:], (4,), (28,))),
    "as_strided": (
        lambda x: x.as_strided((3, 2), (7, 1), 2),
        lambda a: np.lib.stride_tricks.as_strided(a.reshape(-1)[2:], (3, 2), (28, 4)),
    ),
    "chunk": (lambda x: x.chunk(2, 1)[1], lambda a: a[:, 3:]),
    "split": (lambda x: x.split(3)[1], lambda a: a[3:]),
    "unbind": (lambda x: x.unbind(1)[2], lambda a: a[:, 2]),
    "windows": (lambda x: x.unfold(1, 2, 2), lambda a: a.reshape(4, 3, 2)),
    "ellipsis": (lambda x: x[..., 1], lambda a: a[..., 1]),
    "detach": (lambda x: x.detach(), lambda a: a),
    "data": (lambda x: x.data, lambda a: a),
    "view_as": (lambda x: x.view_as(x), lambda a: a),
    "expand same": (lambda x: x.expand(4, 6), lambda a: a),
    "movedim": (lambda x: x.movedim(0, 1), lambda a: a.T),
    "slice of transpose": (lambda x: x.T[1:4, ::2], lambda a: a.T[1:4, ::2]),
    "reshape of slice": (lambda x: x[1:3].reshape(-1)[2:9].view(7, 1), lambda a: a[1:3].reshape(-1)[2:9].reshape(7, 1)),
    "view of a view of a view": (lambda x: x[1:].T[::2].select(0, 1)[1:], lambda a: a[1:].T[::2][1][1:]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_through_a_view_arrives_in_the_base(name):
    x, a = matrix()
    see, show = VIEWS[name]
    v, b = see(x), show(a)
    np.testing.assert_array_equal(v.numpy(), b)
    v.mul_(10)
    b *= 10
    v += 1
    b += 1
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(v.numpy(), b)


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_the_base_arrives_in_a_view(name):
    x, a = matrix()
    see, show = VIEWS[name]
    v, b = see(x), show(a)
    x[1:, 2:] = -5
    a[1:, 2:] = -5
    x.add_(0.5)
    a += 0.5
    np.testing.assert_array_equal(v.numpy(), b)


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_through_one_view_arrives_in_another(name):
    x, a = matrix()
    see, show = VIEWS[name]
    v, b = see(x), show(a)
    w, c = x.T[2:], a.T[2:]
    del x
    v.neg_()
    np.multiply(b, -1, out=b)
    w[0] = 99
    c[0] = 99
    np.testing.assert_array_equal(v.numpy(), b)
    np.testing.assert_array_equal(w.numpy(), c)


@pytest.mark.parametrize("name", VIEWS)
def test_values_taken_before_a_write_do_not_see_it(name):
    x, a = matrix()
    see, show = VIEWS[name]
    v = see(x)
    taken, before = v + 0, show(a).copy()
    copied = v.clone()
    x.zero_()
    np.testing.assert_array_equal(taken.numpy(), before)
    np.testing.assert_array_equal(copied.numpy(), before)
    np.testing.assert_array_equal(v.numpy(), 0 * before)


COPIES = {
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.T.contiguous(),
    "reshape of transpose": lambda x: x.T.reshape(-1),
    "flip": lambda x: x.flip(0),
    "index": lambda x: x[[0, 2]],
    "mask": lambda x: x[x > 3],
    "cast": lambda x: x.double(),
    "repeat": lambda x: x.repeat(1, 1),
    "cat": lambda x: T.cat([x]),
    "stack": lambda x: T.stack([x]),
    "sum of one": lambda x: x[:1].sum(0),
    "to copy": lambda x: x.to(T.float32, copy=True),
    "tensor": lambda x: x.detach().clone(),
    "gather": lambda x: x.gather(0, T.zeros(1, 6, dtype=T.int64)),
    "plus": lambda x: x + 0,
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_share_nothing(name):
    x, a = matrix()
    y = COPIES[name](x)
    before = y.numpy().copy()
    x.fill_(-1)
    np.testing.assert_array_equal(y.numpy(), before)
    x, a = matrix()
    y = COPIES[name](x)
    y.fill_(7)
    np.testing.assert_array_equal(x.numpy(), a)


SAME = {
    "to": lambda x: x.to(T.float32), "float": lambda x: x.float(), "contiguous": lambda x: x.contiguous(),
    "cpu": lambda x: x.cpu(), "expand_as": lambda x: x.expand_as(x), "as_tensor": lambda x: T.as_tensor(x),
    "squeeze": lambda x: x.squeeze(), "reshape": lambda x: x.reshape(4, 6),
    "requires_grad_": lambda x: x.requires_grad_(False),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_what_changes_nothing_shares(name):
    x, _ = matrix()
    y = SAME[name](x)
    x.zero_()
    assert y.sum().item() == 0
    y += 2
    assert x.sum().item() == 48


def test_expanded_tensors_refuse_writes_and_follow_the_base():
    x = T.arange(3.0)
    y = x.unsqueeze(1).expand(3, 4)
    for write in (lambda: y.add_(1), lambda: y.__setitem__(0, 1.0), lambda: y.zero_(), lambda: y.copy_(T.ones(3, 4))):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            write()
    x += 1
    assert y.tolist() == [[1] * 4, [2] * 4, [3] * 4]
    z = y[:, :1]
    assert z.tolist() == [[1], [2], [3]]


def test_overlapping_copy_within_one_storage():
    x = T.arange(6.0)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    x, a = matrix(3, 3)
    x.copy_(x.T)
    np.testing.assert_array_equal(x.numpy(), a.T)
    x, a = matrix(3, 3)
    x += x.T
    np.testing.assert_array_equal(x.numpy(), a + a.T)


def test_augmented_assignment_keeps_the_object():
    for op in ("+=", "-=", "*=", "/=", "//=", "%=", "**="):
        x = T.tensor([5.0, 7.0])
        scope = {"x": x}
        exec(f"x {op} 2", scope)
        want = {"a": np.array([5.0, 7.0], dtype=np.float32)}
        exec(f"a {op} 2", want)
        assert scope["x"] is x
        np.testing.assert_array_equal(x.numpy(), want["a"])
    for op in ("&=", "|=", "^=", "<<=", ">>="):
        x = T.tensor([5, 7])
        scope = {"x": x}
        exec(f"x {op} 2", scope)
        want = {"a": np.array([5, 7])}
        exec(f"a {op} 2", want)
        assert scope["x"] is x
        assert x.tolist() == want["a"].tolist()


def test_a_loop_over_rows_writes_into_the_tensor():
    x = T.zeros(3, 2)
    for k, row in enumerate(x):
        row += k
    assert x.tolist() == [[0, 0], [1, 1], [2, 2]]


def test_in_place_methods_return_self():
    x = T.ones(2)
    assert x.add_(1) is x
    assert x.copy_(T.zeros(2)) is x
    assert x.fill_(3) is x
    assert x.clamp_(max=2) is x
    assert x.tolist() == [2, 2]


def test_version_counts_writes():
    x = T.zeros(3)
    assert x._version == 0
    x += 1
    assert x._version == 1
    v = x[1:]
    v += 1
    x += 1
    assert v._version == x._version == 3
    assert (x + 1)._version == x.clone()._version == 0


# ---- setitem ---------------------------------------------------------------------------------------------------------

KEYS = [
    0, -1, slice(1, 3), slice(None, None, 2), (slice(None), 1), (1, slice(2, None)), ..., (..., 2), (None, 1), (2, 3),
    [0, 2], ([0, 1], [2, 3]), (slice(None), [4, 0, 1]), ([2, 1], slice(1, 3)), (slice(1, 3), [0, 5]),
    np.array([True, False, True, False]), (np.array([[0], [2]]), np.array([1, 3])), slice(2, 2), slice(-3, -1),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("kind", ["number", "tensor", "row", "list", "integers"])
def test_setitem(key, kind):
    x, a = matrix()
    shape = a[key].shape
    if kind == "number":
        value = other = -3.5
    elif kind == "tensor":
        other = -np.arange(1.0, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
        value = T.tensor(other)
    elif kind == "row":
        other = np.full(shape[-1:], -8, dtype=np.float32)
        value = T.tensor(other)
    elif kind == "list":
        if 0 in shape:
            pytest.skip("a list has no shape (0, n)")
        other = np.full(shape, -2.0)
        value = other.tolist()
    else:
        other = np.full((1,) * len(shape), -4)
        value = T.tensor(other)
    x[_key(key)] = value
    a[key] = other
    np.testing.assert_array_equal(x.numpy(), a)


def _key(key):
    """The key with its arrays as tensors."""
    if isinstance(key, np.ndarray):
        return T.tensor(key)
    return tuple(map(_key, key)) if isinstance(key, tuple) else key


def test_setitem_with_masks():
    x, a = matrix()
    x[x > 10] = 0
    a[a > 10] = 0
    x[T.tensor([True, False, True, False]), 2:4] = T.tensor([[1.0, 2.0], [3.0, 4.0]])
    a[[True, False, True, False], 2:4] = [[1.0, 2.0], [3.0, 4.0]]
    mask = a % 2 == 1
    x[x % 2 == 1] = T.arange(float(mask.sum()))
    a[mask] = np.arange(mask.sum())
    np.testing.assert_array_equal(x.numpy(), a)


def test_setitem_through_views_and_chains():
    x, a = matrix()
    x[1][2] = 50
    a[1][2] = 50
    x.T[0][1:] = -1
    a.T[0][1:] = -1
    x[::2][:, 1::2] *= 3
    a[::2][:, 1::2] *= 3
    x[2, 1:4] += T.tensor([1.0, 2.0, 3.0])
    a[2, 1:4] += [1, 2, 3]
    x[:, [0, 3]] -= 1
    a[:, [0, 3]] -= 1
    np.testing.assert_array_equal(x.numpy(), a)


def test_setitem_errors():
    x, _ = matrix()
    with pytest.raises(RuntimeError, match="expanded size|shape mismatch|must match"):
        x[1] = T.zeros(5)
    with pytest.raises(IndexError, match="out of bounds"):
        x[4] = 0
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0, 0] = 1
    assert x.sum().item() == sum(range(24))


# ---- NumPy -----------------------------------------------------------------------------------------------------------


def test_from_numpy_shows_writes_in_both_directions():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = T.from_numpy(a)
    v = x[1]
    x += 1
    np.testing.assert_array_equal(a, [[1, 2, 3], [4, 5, 6]])
    v.zero_()
    np.testing.assert_array_equal(a, [[1, 2, 3], [0, 0, 0]])
    a[0, 0] = 42
    assert x[0, 0].item() == 42
    assert (x + 0)[0, 0].item() == 42
    x.T[2] = -1
    np.testing.assert_array_equal(a[:, 2], -1)
    x[T.tensor([True, False])] = 8
    np.testing.assert_array_equal(a[0], 8)


def test_numpy_shows_writes_in_both_directions():
    x = T.zeros(2, 3) + 1
    a = x.numpy()
    x += 1
    np.testing.assert_array_equal(a, 2)
    a[0] = 9
    assert x.tolist() == [[9, 9, 9], [2, 2, 2]]
    b = x.numpy()
    b[1, 1] = -1
    assert a[1, 1] == -1
    x.neg_()
    assert a[1, 1] == 1


def test_numpy_of_a_view_is_on_the_memory_of_its_base():
    x = T.zeros(3, 4) + 1
    a = x[1].numpy()
    a[:] = 5
    assert x[1].tolist() == [5] * 4
    x[1] += 1
    np.testing.assert_array_equal(a, 6)


def test_a_view_that_was_read_sees_later_writes_of_numpy():
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    v = T.from_numpy(a)[1]
    assert v.tolist() == [4, 5, 6, 7]
    a[1] = 0
    assert v.tolist() == [0, 0, 0, 0]
    assert (v + 1).tolist() == [1, 1, 1, 1]
    a[1, 2] = 9
    assert v.numpy().tolist() == [0, 0, 9, 0]
    v.numpy()[0] = 5
    assert a[1, 0] == 5


@pytest.mark.parametrize("name", VIEWS)
def test_strides_and_numpy_of_views(name):
    x, a = matrix()
    see, show = VIEWS[name]
    v, b = see(x), show(a)
    shown = v.numpy()
    np.testing.assert_array_equal(shown, b)
    for d in range(b.ndim):
        if b.shape[d] > 1:
            assert v.stride(d) == shown.strides[d] // 4 == b.strides[d] // 4
    shown[...] = -1
    b[...] = -1
    np.testing.assert_array_equal(x.numpy(), a)
    v += 3
    np.testing.assert_array_equal(shown, 2)


def test_memory_outlives_its_owner():
    a = T.arange(5.0).numpy()
    x = T.from_numpy(np.arange(5, dtype=np.float32))
    gc.collect()
    np.testing.assert_array_equal(a, np.arange(5))
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_tensor_copies_and_from_numpy_does_not():
    a = np.zeros(3, dtype=np.float32)
    copied, shared, same = T.tensor(a), T.from_numpy(a), T.as_tensor(a)
    a += 1
    assert (copied.tolist(), shared.tolist(), same.tolist()) == ([0] * 3, [1] * 3, [1] * 3)


def test_from_numpy_of_a_strided_array_has_its_elements():
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(T.from_numpy(a.T).numpy(), a.T)
    np.testing.assert_array_equal(T.from_numpy(a[:, ::2]).numpy(), a[:, ::2])


# ---- autograd and out= -----------------------------------------------------------------------------------------------


def test_in_place_under_no_grad_on_leaves_keeps_the_leaf():
    w = T.ones(3, requires_grad=True)
    v = w.detach()
    with T.no_grad():
        w -= 0.5
        w[0] = 4
        w.data.mul_(2)
    assert w.is_leaf and w.requires_grad
    assert w.tolist() == [8, 1, 1]
    assert v.tolist() == [8, 1, 1]
    (w * w).sum().backward()
    assert w.grad.tolist() == [16, 2, 2]


def test_detach_shares_and_has_no_history():
    w = T.ones(3, requires_grad=True)
    y = w * 2
    d = y.detach()
    assert not d.requires_grad and d.is_leaf
    d += 1
    assert y.tolist() == [3, 3, 3]
    assert T.zeros(3).data is not None


def test_assigning_data():
    w = T.ones(3, requires_grad=True)
    new = T.arange(4.0)
    w.data = new
    assert w.requires_grad and w.is_leaf and w.shape == (4,)
    new += 1
    assert w.tolist() == [1, 2, 3, 4]
    w.sum().backward()
    assert w.grad.tolist() == [1] * 4


def test_out():
    x = T.tensor([1.0, 4.0])
    out = T.zeros(2)
    shown = out[1:]
    assert T.sqrt(x, out=out) is out
    assert shown.tolist() == [2]
    assert T.add(x, x, out=x) is x
    assert x.tolist() == [2, 8]
    wide = T.zeros(2, dtype=T.float64)
    T.mul(x, 0.5, out=wide)
    assert (wide.dtype, wide.tolist()) == (T.float64, [1, 4])
    with pytest.raises(RuntimeError, match="can't be cast"):
        T.mul(x, 0.5, out=T.zeros(2, dtype=T.int64))
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        T.sqrt(T.ones(2, requires_grad=True), out=out)
    values, indices = T.zeros(0), T.zeros(0, dtype=T.int64)
    T.max(T.tensor([[1.0, 3.0]]), 1, out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([3.0], [1])


def test_copy_broadcasts_and_casts():
    x = T.zeros(2, 3)
    x.copy_(T.tensor([1, 2, 3]))
    assert x.tolist() == [[1, 2, 3]] * 2
    n = T.zeros(2, dtype=T.int32)
    n.copy_(T.tensor([1.9, -1.9]))
    assert n.tolist() == [1, -1]
    with pytest.raises(RuntimeError):
        x.copy_(T.zeros(4))


def test_copy_from_memory_that_numpy_shows():
    y = T.ones(3) + 0
    a = y.numpy()
    x, z = T.zeros(3), T.zeros(2, 3)
    z[0] = y
    x.copy_(y)
    T.realize(x, z)
    x += 1
    z += 2
    a[0] = 5
    assert (x.tolist(), y.tolist()) == ([2, 2, 2], [5, 1, 1])
    assert z.tolist() == [[3, 3, 3], [2, 2, 2]]
    b = np.zeros(3, dtype=np.float32)
    w = T.from_numpy(b)
    w.copy_(x)
    x.zero_()
    assert b.tolist() == [2, 2, 2] == w.tolist()


def test_copy_from_a_view_of_itself():
    x = T.arange(4.0)
    v = x[:2]
    x += 1  # v is stale
    x[2:].copy_(v)
    x.copy_(x[:])
    x.copy_(x)
    assert x.tolist() == [1, 2, 1, 2]
    y = x.view(2, 2)
    x *= 2
    x.view(2, 2).copy_(y.T)
    assert y.tolist() == [[2, 2], [4, 4]]


def test_copy_from_a_leaf_that_requires_grad():
    w = T.ones(3, requires_grad=True)
    x = T.zeros(3)
    x.copy_(w)
    assert not x.is_leaf and x.requires_grad
    x *= 2
    x.sum().backward()
    assert w.grad.tolist() == [2, 2, 2]
