"""Random modules of PyTorch, exported with open sizes, against eager execution at sizes of 0, 1, odd and larger ones.

A size that the exported graph does not fit may be refused with an error of Weft (I004); everything else agrees, except
for what eager execution refuses itself. Chains of many layers take float32; chains of single operators take any dtype.
"""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from seeds import seeds

import weft
from weft.support.errors import InputError

torch = pytest.importorskip("torch")
from typed_exports import Typed  # noqa: E402  # it needs torch

WIDTH = 6
"""The only size that is known."""
SIZES = ((0, 3), (3, 0), (0, 0), (1, 1), (2, 5), (7, 1), (1, 17))
TOLERANCE = 2e-4
HALF_TOLERANCE = 2e-3
"""float16 has 11 bits."""

Step = Callable[[Any], Any]


def _steps(pick: random.Random) -> list[Step]:
    """What may follow a tensor of shape [n, m, WIDTH]; the shape stays."""
    dim, other = pick.randrange(3), pick.choice([-1, 0, 1])
    shift, cut = pick.choice([-2, -1, 1, 2]), pick.choice([1, 2, 3])
    layer = torch.nn.Linear(WIDTH, WIDTH).requires_grad_(False)
    norm = torch.nn.LayerNorm(WIDTH).requires_grad_(False)
    mixed = torch.nn.Conv1d(WIDTH, WIDTH, 3, padding=1).requires_grad_(False)
    return [
        lambda x: torch.relu(x) + 0.5,
        lambda x: torch.sigmoid(x) * x,
        lambda x: torch.where(x > 0, x, -0.1 * x),
        lambda x: x.roll(shift, dim),
        lambda x: x.flip(dim),
        lambda x: x + x.sum(dim, keepdim=True),
        lambda x: x - x.sum((0, 2), keepdim=True) * 0.1,
        lambda x: x * x.sum((0, 1, 2)).tanh(),
        lambda x: x + x.cumsum(dim).tanh(),
        lambda x: torch.cat([x[cut:], x[:cut]]),
        lambda x: torch.cat([x[:, -cut:], x[:, :-cut]], 1),
        lambda x: torch.softmax(x, 2),
        # The exporter writes log1p as log(1 + x), which is 0 for small numbers: "x > 0" of these would differ.
        lambda x: torch.log_softmax(x, dim) if dim == 2 else (torch.softmax(x, 2) + 0.01).log1p(),
        lambda x: layer(x),
        lambda x: norm(x),
        lambda x: mixed(x.transpose(1, 2)).transpose(1, 2) if other == 0 else x.abs().sqrt(),
        lambda x: x.transpose(0, 1).contiguous().transpose(0, 1) * 1.5,
        lambda x: x.reshape(-1, WIDTH).reshape(x.shape),
        lambda x: torch.einsum("abc,abd->acd", x, x).sum(2).unsqueeze(1) * 0.05 + x,
        lambda x: torch.nn.functional.pad(x, (0, 0, 1, 1))[:, 1:-1],
        lambda x: torch.stack([x, -x]).amax(0),
        lambda x: x.repeat(2, 1, 1).reshape(2, *x.shape).sum(0),
        lambda x: torch.matmul(x, x.transpose(1, 2)).tanh() @ x,
        lambda x: x.masked_fill(x > 1, 1.0),
        lambda x: x.clamp(-2, 2).pow(2) - x,
    ]


def _ends(pick: random.Random) -> list[Step]:
    """What may be the result: the tensor, or a reduction of it."""
    dims = pick.choice([(0, 2), (0, 1), (1, 2), (0, 1, 2), (0,), (1,), (2,)])
    keep = pick.random() < 0.5
    return [
        lambda x: x,
        lambda x: x.sum(dims, keepdim=keep),
        lambda x: x.prod(dims[-1], keepdim=keep),
        lambda x: (x > 0).any(dims[0], keepdim=keep),
        lambda x: (x > 0).all(dims[-1]),
        lambda x: (x > 0.3).to(torch.int64).sum(dims),
        lambda x: x.logsumexp(2),
        lambda x: x.reshape(-1, 2 * WIDTH // 2),
    ]


class Chain(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch has no stubs here
    def __init__(self, seed: int) -> None:
        super().__init__()
        pick = random.Random(seed)
        torch.manual_seed(seed)
        self.names = [pick.randrange(len(_steps(pick))) for _ in range(pick.randint(1, 4))]
        self.steps = [_steps(pick)[n] for n in self.names]
        self.ends = [pick.choice(_ends(pick)) for _ in range(2)]

    def forward(self, x: Any) -> Any:
        for step in self.steps:
            x = step(x)
        return tuple(end(x) for end in self.ends)


def _exported(module: Any, x: Any) -> Any:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (x,), file, dynamo=False, opset_version=17,
            input_names=["x"], dynamic_axes={"x": {0: "n", 1: "m"}},
        )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def _sample(n: int, m: int, seed: int) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, m, WIDTH)).astype(np.float32))


def compare(module: Any, model: Any, sample: Callable[[int, int, int], Any], seed: int, about: Any) -> int:
    """Compare one module at all sizes; the number of sizes that were refused. All others have numbers to compare."""
    run, refused = weft.compile(model, threads=1), 0
    for n, m in SIZES:
        x, message = sample(n, m, seed), f"seed {seed}, {n}×{m}, {about}"
        try:
            with warnings.catch_warnings():  # a variance of one number is NaN, which PyTorch says and gives
                warnings.filterwarnings("ignore", r"var\(\): degrees of freedom", UserWarning)
                wanted = [w.numpy() for w in module(x)]
        except (RuntimeError, IndexError):  # windows larger than the padded axis, and the like
            assert 0 in (n, m), message
            wanted = None
        try:
            made = run(x.numpy())
        except InputError as error:
            assert error.code == "I004" and 0 in (n, m), f"{message}: {error}"
            refused += wanted is not None
            continue
        if wanted is None:
            continue
        for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype, message
            _agree(got, want, message, 0 in (n, m))
    return refused


def _agree(got: Any, want: Any, message: str, empty: bool) -> None:
    """Equal, or for floats nearly so, relative to the largest finite number."""
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=message)
        return
    finite = np.isfinite(want)
    assert finite.any() or not want.size or empty, f"{message}: nothing to compare"
    scale = max(1.0, float(np.abs(want[finite].astype(np.float64)).max(initial=0.0)))
    limit = HALF_TOLERANCE if want.dtype == np.float16 else TOLERANCE
    np.testing.assert_allclose(got / scale, want / scale, atol=limit, err_msg=message)


def one_case(seed: int) -> int:
    """A chain of layers of float32."""
    module = Chain(seed).eval()
    with torch.no_grad():
        return compare(module, _exported(module, torch.randn(3, 5, WIDTH)), _sample, seed, module.names)


def one_typed_case(seed: int) -> int | None:
    """A chain of operators of many dtypes; None if PyTorch does not export it."""
    module = Typed(seed).eval().requires_grad_(False)
    with torch.no_grad():
        try:
            model = _exported(module, module.sample(3, 5, seed))
        except (torch.onnx.errors.OnnxExporterError, RuntimeError):  # integers of 32 bits and bytes in some operators
            return None
        return compare(module, model, module.sample, seed, module.names)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", seeds(12))
def test_exports_with_open_sizes(seed: int) -> None:
    assert one_case(seed) == 0, "no size is refused that eager execution takes"


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(12))
def test_exports_of_many_dtypes(seed: int) -> None:
    assert not one_typed_case(seed), "no size is refused that eager execution takes"


def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison finds results that are off by one at one of the sizes."""
    original = weft.compile

    def off(*args: Any, **options: Any) -> Callable[[Any], Any]:
        run = original(*args, **options)

        def changed(x: Any) -> Any:
            made = run(x)
            return tuple(m + m.dtype.type(1) if x.shape[:2] == (7, 1) else m for m in made)

        return changed

    monkeypatch.setattr(weft, "compile", off)
    with pytest.raises((AssertionError, TypeError)):  # truth values have no sum
        one_case(0)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_a_thousand_exports_with_open_sizes(part: int) -> None:
    refused = sum(one_case(seed) for seed in seeds(25, 100_000 + 100 * part))
    assert not refused, "no size is refused that eager execution takes"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_a_thousand_exports_of_many_dtypes(part: int) -> None:
    found = [one_typed_case(seed) for seed in seeds(25, 200_000 + 100 * part)]
    assert sum(refused is not None for refused in found) >= 15  # most are exported
    assert not any(found), "no size is refused that eager execution takes"


class Fixed(torch.nn.Module):  # type: ignore[misc, name-defined]  # as above
    """One function."""

    def __init__(self, function: Step) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return (self.function(x),)


ROLLED: dict[str, Step] = {
    "roll, cumsum": lambda x: x.roll(1, 0).cumsum(1),
    "roll, product, softmax": lambda x: (x.roll(-2, 0) @ x.transpose(1, 2)).softmax(2),
    "roll of both": lambda x: x.roll((1, -3), (0, 1)) * 2,
    "roll, flip, roll": lambda x: x.roll(1, 0).flip(0).roll(-1, 1),
    "roll, sum": lambda x: x.roll(2, 1).sum(1),
    "roll, reshape": lambda x: x.roll(1, 0).reshape(-1, 2).cumsum(0),
    "roll, concat": lambda x: torch.cat([x.roll(1, 0), x.roll(1, 1)], 2),
}


@pytest.mark.parametrize("name", ROLLED)
def test_rolls_of_empty_batches(name: str) -> None:
    """PyTorch exports them as slices from the last element on; no size is refused."""
    module = Fixed(ROLLED[name]).eval()
    with torch.no_grad():
        assert compare(module, _exported(module, torch.randn(3, 5, WIDTH)), _sample, 0, name) == 0
