"""The compiled kernels against arithmetic in float64 and int64: every shape, every precision, and what is at their edges."""

import copy
import importlib
import math
import os
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core.dispatcher import Dispatcher

from fastdecode_lib import kernels
from fastdecode_lib.kernels import compiling, cpu, elementwise, matrices, recurrent, top_k
from fastdecode_lib.kernels.attention import FIRST_PAGE, attend, attend_from
from fastdecode_lib.kernels.matrices import (
    CHECKED,
    CODE,
    INT8_LIMIT,
    INT16_LIMIT,
    PRECISIONS,
    SUM_LIMIT,
    Matrix,
    OverflowRisk,
)
from fastdecode_lib.kernels.packing import Listing
from fastdecode_lib.kernels.tiles import BFLOAT16, FLOAT16, FLOAT32, INT8, INT8_FOURS, INT16, Format
from fastdecode_lib.projections.exact_compiled import ROWS, CompiledExact

ROUNDED = ("int16", "int8")
KINDS = (*PRECISIONS, "fixed")
EVERY_KIND = (*KINDS, "float16")
SHORT = ("float32 in float16", "float32 in bfloat16")
HALVES = FLOAT16 if "f16c" in cpu.features() else FLOAT32
"""How float32 weights are stored that float16 holds exactly."""
FIXED = {"precision": "int16", "multiplier": 1024, "largest": 1.0}


def matrix(kind: str, weight: np.ndarray, bias: np.ndarray | None = None) -> Matrix:
    return Matrix.of(weight, bias, **(FIXED if kind == "fixed" else {"precision": kind.partition(" ")[0]}))


def random_product(seed: int, kind: str, rows: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows (M, K), weight (N, K) and bias (N,) of odd shapes and of very different magnitudes."""
    random = np.random.default_rng(seed)
    m, n, k = (int(random.integers(1, 71)) for _ in range(3))
    x, weight = random.normal(size=(rows or m, k)), random.normal(size=(n, k))
    if kind != "fixed":
        x *= 10.0 ** random.integers(-4, 5, size=(len(x), 1))
        weight *= 10.0 ** random.integers(-4, 5, size=(n, 1))
    else:
        weight = np.clip(weight, -1, 1)
    return x.astype(np.float32), weight.astype(np.float32), random.normal(size=n).astype(np.float32)


# What the docstrings of `matrices` promise, written once more, without a loop and with int64.


def whole_weight(kind: str, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Integers (N, K) and what they are multiples of, (N,)."""
    if kind == "fixed":
        return np.rint(weight * np.float32(1024)).astype(np.int64), np.full(len(weight), 1 / 1024, np.float32)
    magnitudes = np.abs(weight)
    if kind == "int8":
        scale = magnitudes.max(1) / np.float32(INT8_LIMIT)
    else:
        most = SUM_LIMIT // INT16_LIMIT - weight.shape[1]
        whole = magnitudes.astype(np.float64)
        scale = np.maximum(whole.max(1) / 32767, whole.sum(1) / most).astype(np.float32)
    return np.rint(weight / scale[:, None]).astype(np.int64), scale


def whole_rows(kind: str, x: np.ndarray, multiplier: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """Integers (M, K) and what they are multiples of, (M,)."""
    if kind == "fixed":
        whole = np.clip(np.rint(x * np.float32(multiplier)), -multiplier, multiplier)
        return whole.astype(np.int64), np.full(len(x), 1 / multiplier, np.float32)
    limit = np.float32(INT8_LIMIT if kind == "int8" else INT16_LIMIT)
    largest = np.abs(x).max(1)
    return np.rint(x * (limit / largest)[:, None]).astype(np.int64), largest / limit


def exact(kind: str, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The product as documented: an exact sum of integers, times the scales, plus the bias, rounded once each."""
    (w, output_scale), (r, row_scale) = whole_weight(kind, weight), whole_rows(kind, x)
    sums = r @ w.T
    assert np.abs(sums).max() <= SUM_LIMIT
    scaled = (sums.astype(np.float32) * output_scale).astype(np.float64) * row_scale[:, None].astype(np.float64)
    return (scaled + bias).astype(np.float32)


def unpacked(packed: Matrix) -> np.ndarray:
    """The integers of a packed weight, int64 (N, K)."""
    blocks = packed.weight.astype(np.int64).transpose(0, 2, 1, 3)
    return blocks.reshape(len(blocks) * 16, -1)[: packed.shape[0], : packed.shape[1]]


# ------------------------------------------------------------------------------------------------------------ products


@pytest.mark.parametrize("seed", range(60))
def test_a_float32_product_is_that_of_float64_but_for_rounding(seed: int) -> None:
    x, weight, bias = random_product(seed, "float32")
    found, wide = Matrix.of(weight, bias)(x), x.astype(np.float64)
    most = np.abs(wide) @ np.abs(weight.T.astype(np.float64)) + np.abs(bias)
    error = np.abs(found - (wide @ weight.T.astype(np.float64) + bias))
    assert found.dtype == np.float32 and found.shape == (len(x), len(weight))
    assert (error <= (x.shape[1] + 1) * 2.0**-24 * most).all()


@pytest.mark.parametrize("seed", range(30))
def test_half_precision_weights_are_rounded_once_and_multiplied_as_float32(seed: int) -> None:
    """The same bits as a float32 matrix that holds the rounded weights; both give back what they were packed from."""
    x, weight, bias = random_product(seed, "float32")
    half = Matrix.of(weight, bias, "float16")
    with np.errstate(over="ignore"):
        rounded = weight.astype(np.float16).astype(np.float32)
    whole = in_float32(rounded, bias)
    assert (half(x) == whole(x)[:, : len(weight)]).all()
    assert (half.unpacked() == rounded).all() and (Matrix.of(weight).unpacked() == weight).all()
    some = np.random.default_rng(seed).integers(0, len(weight), 5)
    assert (half.rows(some)(x) == half(x)[:, some]).all()


def in_float32(weight: np.ndarray, bias: np.ndarray) -> Matrix:
    """A matrix with one output more, whose weight no shorter format holds."""
    more = np.full((1, weight.shape[1]), np.float32(0.1))
    found = Matrix.of(np.concatenate([weight, more]), np.append(bias, np.float32(0)))
    assert found.format == FLOAT32
    return found


@pytest.mark.parametrize("form", [FLOAT16, BFLOAT16], ids=lambda form: form.name)
@pytest.mark.parametrize("seed", range(30))
def test_float32_weights_that_half_the_bits_hold_are_stored_so_with_the_same_products(seed: int, form: Format) -> None:
    x, weight, bias = random_product(seed, "float32")
    weight = np.clip(weight, -6e4, 6e4)
    if form == FLOAT16:
        rounded = weight.astype(np.float16).astype(np.float32)
        rounded[0, 0] = np.float32(2.0**-24)  # the smallest, which bfloat16 has too, and one that it has not
        rounded[-1, -1] = np.float32(1 + 2.0**-10)
    else:
        rounded = (weight.view(np.uint32) & 0xFFFF0000).view(np.float32)
        rounded[0, 0], rounded[-1, -1] = np.float32(2.0**-126), np.float32(2.0**100)
    short, whole = Matrix.of(rounded, bias), in_float32(rounded, bias)
    assert (short.precision, short.format) == ("float32", form if form == BFLOAT16 else HALVES)
    assert short.weight[0].nbytes == whole.weight[0].nbytes // (1 if short.format == FLOAT32 else 2)
    assert (short(x).view(np.int32) == whole(x)[:, : len(weight)].view(np.int32)).all()
    assert (short.unpacked() == rounded).all()
    some = np.random.default_rng(seed).integers(0, len(weight), 5)
    assert (short.rows(some)(x) == short(x)[:, some]).all() and (Listing(short)(x, some) == short(x)[:, some]).all()
    assert (copy.deepcopy(short)(x) == short(x)).all()


@pytest.mark.parametrize("entry", [1 + 2.0**-11, 2.0**-25, 65520.0, 3e-42])
def test_a_weight_with_one_entry_that_half_the_bits_do_not_hold_stays_in_float32(entry: float) -> None:
    weight = np.full((CHECKED + 70, 9), np.float32(1 + 2.0**-10))
    assert Matrix.of(weight).format == HALVES
    weight[-1, 8] = entry
    assert Matrix.of(weight).format == FLOAT32 and (Matrix.of(weight).unpacked() == weight).all()


def test_packing_minds_no_settings_of_numpy() -> None:
    with np.errstate(all="raise"):
        assert Matrix.of(np.full((3, 3), np.float32(3e-6 / 7))).format == FLOAT32


def test_half_precision_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(OverflowRisk, match="does not fit in float16: its largest weight is 7e"):
        Matrix.of(np.full((3, 3), 7e4), precision="float16")
    with pytest.raises(ValueError, match="Only a float weight can be packed otherwise: got one in int8"):
        Matrix.of(np.ones((3, 3)), precision="int8").unpacked()


@pytest.mark.parametrize("kind", ["int16", "int8", "fixed"])
@pytest.mark.parametrize("seed", range(40))
def test_integer_sums_are_exact(kind: str, seed: int) -> None:
    x, weight, bias = random_product(seed, kind)
    packed = matrix(kind, weight, bias)
    assert (unpacked(packed) == whole_weight(kind, weight)[0]).all()
    assert (packed(x) == exact(kind, x, weight, bias)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_at_once_are_single_rows_bit_for_bit(kind: str) -> None:
    x, weight, bias = random_product(7, kind, rows=70)
    packed = matrix(kind, weight, bias)
    single = np.concatenate([packed(x[row : row + 1]) for row in range(len(x))])
    for count in (*range(1, 50), 53, 70):
        assert (packed(x[:count]) == single[:count]).all(), count
        assert (packed(x[70 - count :]) == single[70 - count :]).all(), count


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_give_no_rows(kind: str) -> None:
    assert matrix(kind, np.ones((5, 3)))(np.zeros((0, 3))).shape == (0, 5)


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("columns", [1, 2, 3, 67, 1001])
def test_extremes_of_every_sign_are_exact(kind: str, columns: int) -> None:
    """All entries as large as they come: no sum saturates, wherever it passes through."""
    signs = np.array([np.ones(columns), -np.ones(columns), (-1.0) ** np.arange(columns)], dtype=np.float32)
    x, weight = signs * np.float32(3.7), np.tile(signs, (7, 1)) * np.float32(0.2)
    assert (matrix(kind, weight)(x) == exact(kind, x, weight, np.zeros(21, np.float32))).all()


@pytest.mark.parametrize("columns", [2000, 20_000, SUM_LIMIT // INT16_LIMIT // 2])
def test_the_heaviest_int16_weight_cannot_overflow(columns: int) -> None:
    random = np.random.default_rng(columns)
    weight = np.stack([np.ones(columns), -random.random(columns), random.normal(size=columns) ** 5]).astype(np.float32)
    packed = Matrix.of(weight, precision="int16")
    assert np.abs(unpacked(packed)).sum(1).max() * INT16_LIMIT <= SUM_LIMIT
    rows = np.sign(weight)
    assert (packed(rows) == exact("int16", rows, weight, np.zeros(3, np.float32))).all()
    with pytest.raises(OverflowRisk, match=r"int16 products cannot hold 262209 columns. Use float32"):
        Matrix.of(np.ones((1, 262_209)), precision="int16")


@pytest.mark.parametrize("layout", ["portable", "vnni"])
def test_the_longest_int8_weight_cannot_overflow(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTDECODE_CPU", layout)
    columns = SUM_LIMIT // INT8_LIMIT**2
    weight = np.ones((2, columns), dtype=np.float32)
    weight[1] = -1
    rows = weight * np.float32(5)
    assert (Matrix.of(weight, precision="int8")(rows) == exact("int8", rows, weight, np.zeros(2, np.float32))).all()
    with pytest.raises(OverflowRisk, match=f"up to {columns} columns, got {columns + 1}. Use float32"):
        Matrix.of(np.ones((1, columns + 1)), precision="int8")


# ----------------------------------------------------------------------------------------------------- listed products

ListedProduct = Callable[[Matrix, np.ndarray, np.ndarray], np.ndarray]


def products_with_listed_outputs_are_those_of_the_whole(product: ListedProduct, kind: str) -> None:
    """Bit for bit, in any order and repeated, of every width; lists are shorter and longer than what is packed at a time."""
    for seed, columns in enumerate((*range(1, 20), 67, 300)):
        random = np.random.default_rng(seed)
        rows, outputs = int(random.integers(1, 71)), int(random.integers(1, 500))
        x, weight = random.normal(size=(rows, columns)), np.clip(random.normal(size=(outputs, columns)), -1, 1)
        packed = matrix(kind, weight, random.normal(size=outputs))
        every = packed(x)
        for count in (1, 15, 64, 65, 700):
            ids = random.integers(0, outputs, count)
            found = product(packed, x, ids)
            assert found.shape == (rows, count) and (found == every[:, ids]).all(), (columns, count)


def listed(packed: Matrix, x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return Listing(packed)(x, ids)


def without_the_columns_behind_whole_fours(packed: Matrix, x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """What is packed four columns at a time, and nothing else."""
    x = x.copy()
    x[:, x.shape[1] // 4 * 4 :] = 0
    return listed(packed, x, ids)


def with_the_first_biases(packed: Matrix, x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The weight's rows are listed, their biases are not."""
    original = packed.bias.copy()
    packed.bias[ids] = original[: len(ids)] if len(ids) <= len(original) else 0
    found = listed(packed, x, ids)
    packed.bias[:] = original
    return found


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("layout", ["portable", "vnni"])
def test_products_with_listed_outputs_are_those_of_the_whole(
    kind: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTDECODE_CPU", layout)
    products_with_listed_outputs_are_those_of_the_whole(listed, kind)
    for broken in (without_the_columns_behind_whole_fours, with_the_first_biases):
        with pytest.raises(AssertionError):
            products_with_listed_outputs_are_those_of_the_whole(broken, kind)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copied_listing_outlives_its_original(again: object) -> None:
    original = Listing(Matrix.of(np.arange(6.0).reshape(2, 3)))
    other = again(original)
    del original
    assert other(np.ones((1, 3)), np.array([1])).tolist() == [[12]]


# --------------------------------------------------------------------------------------------------------- fixed point


def test_fixed_point_holds_the_papers_widest_layer() -> None:
    """2047 weights of 1 and rows of 1, the most that 1024 times 1024 leaves room for; one more costs a bit of the rows."""
    weight = np.ones((3, 2047), dtype=np.float32)
    packed = Matrix.of(weight, **FIXED)
    assert packed.multiplier == packed.limit == 1024
    assert (packed(weight) == 2047).all() and (packed(-weight) == -2047).all() and (packed(9 * weight) == 2047).all()
    more = Matrix.of(np.ones((1, 2048)), **FIXED)
    assert more.multiplier == 512 and (more(np.ones((1, 2048))) == 2048).all()


def test_fixed_point_gives_clipped_relus_the_bits_that_fit() -> None:
    weight = np.random.default_rng(1).uniform(-1, 1, size=(9, 700)).astype(np.float32)
    packed = Matrix.of(weight, precision="int16", multiplier=1024, largest=10.0)
    heaviest = np.abs(unpacked(packed)).sum(1).max()
    assert packed.multiplier < 1024 and packed.limit == 10 * packed.multiplier
    assert heaviest * packed.limit <= SUM_LIMIT < heaviest * packed.limit * 2
    rows = 10 * np.sign(weight)
    assert (packed(rows) == (rows.astype(np.int64) @ unpacked(packed).T / 1024).astype(np.float32)).all()


@pytest.mark.parametrize(
    ("weight", "options", "error", "message"),
    [
        (np.ones((1, 40_000)), FIXED, OverflowRisk, "the gates can overflow .* of total magnitude 40000 leave less than 6"),
        (np.full((1, 2), 32.1), FIXED, OverflowRisk, "the gates does not fit in 16 bits: its largest weight is 32.1, times"),
        (np.ones((1, 2)), FIXED | {"multiplier": 40_000}, ValueError, "from 1 to 32767, got 40000. The paper's .* 1024"),
        (np.ones((1, 2)), FIXED | {"precision": "int8"}, ValueError, "for int16: got multiplier=1024 with int8. Use 0"),
        (np.ones((1, 2)), {"precision": "int4"}, ValueError, "Unknown precision: got 'int4'. Use one of float32, int16"),
        (np.ones((0, 2)), {}, ValueError, r"the gates must have outputs and columns: got .* shape \(0, 2\). Use \(N, K\)"),
        (np.ones((2, 0)), {}, ValueError, r"the gates must have outputs and columns: got .* shape \(2, 0\)"),
        (np.ones(2), {}, ValueError, r"the gates must have outputs and columns: got .* shape \(2,\)"),
        (np.array([[1, np.nan]]), {"precision": "int8"}, ValueError, "the gates cannot be rounded to integers: got a weight"),
        (np.array([[1, -np.inf]]), FIXED, ValueError, "the gates cannot be rounded to integers: got a weight that is not"),
    ],
)  # fmt: skip
def test_weights_that_cannot_be_packed(weight: np.ndarray, options: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        Matrix.of(weight, name="the gates", **options)


def test_a_product_checks_the_width_of_its_rows() -> None:
    for shape in ((2, 4), (3,), (2, 2)):
        with pytest.raises(ValueError, match=r"with a weight \(5, 3\) needs rows of 3, got"):
            Matrix.of(np.ones((5, 3)))(np.ones(shape))


# ------------------------------------------------------------------------------------------------------------ extremes


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_give_the_bias(kind: str) -> None:
    bias = np.array([0.5, -2, 0], dtype=np.float32)
    assert (matrix(kind, np.ones((3, 5)), bias)(np.zeros((2, 5))) == bias).all()
    assert (matrix(kind, np.zeros((3, 5)), bias)(np.ones((2, 5))) == bias).all()


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-37, 1e-31])
def test_entries_too_small_to_be_rounded_count_as_next_to_nothing(kind: str, size: float) -> None:
    tiny, ones = np.array([[size, -size, 0, size, size]], dtype=np.float32), np.ones((1, 5), dtype=np.float32)
    assert np.abs(matrix(kind, ones)(tiny)).max() < 1e-29
    packed = matrix(kind, tiny)
    assert np.abs(packed(ones)).max() < 1e-29 and np.abs(unpacked(packed)).sum() * INT16_LIMIT <= SUM_LIMIT


@pytest.mark.parametrize("kind", PRECISIONS)
def test_huge_entries_keep_their_sign(kind: str) -> None:
    huge, small = np.array([[3e38, 0, -1e30]], dtype=np.float32), np.full((2, 3), 1e-6, dtype=np.float32)
    small[1] *= -1
    assert matrix(kind, small)(huge)[0] == pytest.approx([3e32, -3e32], rel=0.02)
    assert matrix(kind, huge * np.float32(1e-10))(small)[:, 0] == pytest.approx([3e22, -3e22], rel=0.02)


@pytest.mark.parametrize("kind", ("int16", "int8", "fixed"))
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 6])
def test_a_row_that_is_not_finite_gives_nan_and_leaves_its_neighbours(kind: str, bad: float, column: int) -> None:
    x, weight, bias = (a[:, :7] if a.ndim == 2 else a for a in random_product(1, kind, rows=5))
    expected = matrix(kind, weight, bias)(x)
    x[2, column] = bad
    found = matrix(kind, weight, bias)(x)
    assert np.isnan(found[2]).all() and (np.delete(found, 2, 0) == np.delete(expected, 2, 0)).all()


def test_floats_that_are_not_finite_come_out_as_in_any_arithmetic() -> None:
    x = np.array([[np.inf, 1], [np.nan, 1], [1, 1]], dtype=np.float32)
    found = Matrix.of(np.array([[2.0, 1], [-1, 1]]))(x)
    assert found[0].tolist() == [np.inf, -np.inf] and np.isnan(found[1]).all() and found[2].tolist() == [3, 0]


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copied_matrix_outlives_its_original(again: object) -> None:
    original = Matrix.of(np.arange(6.0).reshape(2, 3), precision="int16")
    other = again(original)
    assert other.record[0] == other.weight.ctypes.data
    del original
    assert (other(np.ones((1, 3))).round() == [[3, 12]]).all()


# ---------------------------------------------------------------------------------------------------------- processors

PROBE = """
import os, sys
import numpy as np
from fastdecode_lib.kernels.matrices import Matrix
from fastdecode_lib.kernels.packing import Listing
from test_kernels import EVERY_KIND, SHORT, matrix, not_products
found, given = {}, dict(np.load(sys.argv[1]))
for kind in (*EVERY_KIND, *SHORT):
    for layout in ("portable", "vnni"):
        os.environ["FASTDECODE_CPU"] = layout
        packed, x = matrix(kind, given[f"{kind}-weight"], given[f"{kind}-bias"]), given[f"{kind}-x"]
        found[f"{kind}-{layout}"] = packed(x)
        found[f"{kind}-{layout}-listed"] = Listing(packed)(x, np.arange(0, packed.shape[0], 3))
np.savez(sys.argv[2], **found, **not_products(given["rows"]))
"""


def scratch_of_slots(slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Room for scores and offsets of attention."""
    return np.empty(-(-slots // 16) * 16, np.float32), np.empty(-(-slots // 16) * 16, np.int64)


def not_products(rows: np.ndarray) -> dict[str, np.ndarray]:
    """What the kernels make of rows (M, K) beside products."""
    count, width = rows.shape
    normalised, attended, sums, powers = np.empty_like(rows), np.empty_like(rows), np.empty(count), rows.copy()
    keys = rows[None]
    elementwise.normalise(rows, count, width, rows[0], rows[1], np.float32(1e-5), normalised)
    divided, biased, places = np.empty_like(rows), np.empty_like(rows), np.arange(count)
    elementwise.divide_by_root_mean_square(rows, count, width, rows[0], np.float32(1e-6), divided)
    scores, offsets, nothing = *scratch_of_slots(count), np.empty(0, dtype=bool)
    biases = rows[:1, : width - 1 + width % 2]  # an odd number of them: as many on both sides of the position itself
    for row in range(count):
        attend(rows[row], keys, keys, count, nothing, scores, offsets, attended[row])
        attend_from(
            rows[row], keys[None], keys[None], FIRST_PAGE, count, nothing, np.float32(0.3), biases, row, places, scores, offsets,
            biased[row],
        )  # fmt: skip
        sums[row] = elementwise.log_sum(rows, row, width)
        recurrent.tangent(powers[row], recurrent.POLYNOMIAL)
    found = {"normalised": normalised, "attended": attended, "log_sums": sums, "tangents": powers}
    return found | {"divided": divided, "biased": biased}


@pytest.mark.parametrize("seed", range(8))
def test_bytes_in_fours_are_the_same_integers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = random_product(seed, "int8")
    found = []
    for layout, form in (("portable", "int8"), ("vnni", "int8 in fours")):
        monkeypatch.setenv("FASTDECODE_CPU", layout)
        packed = Matrix.of(weight, bias, "int8")
        assert packed.format.name == form
        found.append(packed(x))
    assert (found[0] == found[1]).all()


@pytest.mark.skipif(not cpu.has_amx(), reason="no AMX, or none for this process")
@pytest.mark.parametrize("columns", [64, 128, 192, 448, 1024, 100])
def test_tiles_of_amx_give_the_same_bits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of rows, in several threads, in lists, and for rows that are not finite."""
    random = np.random.default_rng(columns)
    weight, bias = random.normal(size=(130, columns)).astype(np.float32), random.normal(size=130).astype(np.float32)
    x = random.normal(size=(97, columns)).astype(np.float32) * random.choice([0, 1e-3, 1, 1e4], size=(97, 1))
    x[5, 3], x[40, 0] = np.nan, np.inf
    x = x.astype(np.float32)
    tiles = Matrix.of(weight, bias, "int8")
    monkeypatch.setenv("FASTDECODE_CPU", "vnni")
    vectors = Matrix.of(weight, bias, "int8")
    assert tiles.record[CODE] != vectors.record[CODE]
    expected = vectors(x)
    for rows in (1, 7, 8, 15, 16, 17, 23, 24, 31, 48, 49, 56, 97):
        assert np.array_equal(tiles(x[:rows]), expected[:rows], equal_nan=True), rows
    listed = np.arange(0, 130, 3)
    assert np.array_equal(Listing(tiles)(x, listed), expected[:, listed], equal_nan=True)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(tiles, [x] * 40):
            assert np.array_equal(found, expected, equal_nan=True)


def test_a_processor_without_anything_gives_the_same_bits(tmp_path: Path) -> None:
    """numba compiles for the oldest x86-64, or the plainest of another make; its compiled code stays by itself."""
    rows = np.random.default_rng(5).normal(size=(9, 77)).astype(np.float32) * np.float32(3)
    given, expected = {"rows": rows}, not_products(rows)
    for kind in (*EVERY_KIND, *SHORT):
        x, weight, bias = random_product(3, kind, rows=11)
        if kind.endswith("float16"):
            weight = np.clip(weight, -6e4, 6e4)
        if kind == SHORT[0]:
            weight = weight.astype(np.float16).astype(np.float32)
        elif kind == SHORT[1]:
            weight = (weight.view(np.uint32) & 0xFFFF0000).view(np.float32)
        given |= {f"{kind}-x": x, f"{kind}-weight": weight, f"{kind}-bias": bias}
        products = matrix(kind, weight, bias)(x)
        for layout in ("portable", "vnni"):
            expected |= {f"{kind}-{layout}": products, f"{kind}-{layout}-listed": products[:, ::3]}
    np.savez(tmp_path / "given.npz", **given)
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path / "compiled")}
    subprocess.run(
        [sys.executable, "-c", PROBE, tmp_path / "given.npz", tmp_path / "found.npz"],
        env=os.environ | plain | {"PYTHONPATH": str(Path(__file__).parent)},
        cwd=Path(__file__).parents[2], timeout=300, check=True,
    )  # fmt: skip
    found = dict(np.load(tmp_path / "found.npz"))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert np.array_equal(value, expected[name], equal_nan=True), name


@pytest.mark.parametrize("width", [1, 5, 16, 31, 32, 63, 64, 100, 1027])
def test_sums_are_made_in_one_order_however_an_array_lies(width: int) -> None:
    """Rows cut out of a wider array are compiled for anew: the same numbers, whatever loop the compiler makes of it."""
    rows = np.random.default_rng(width).normal(size=(9, width)).astype(np.float32) * np.float32(3)
    cut = np.zeros((9, width + 7), np.float32)[:, :width]
    cut[:] = rows
    expected, found = not_products(rows), not_products(cut)
    for name, value in found.items():
        assert np.array_equal(value, expected[name]), name
    exact = rows.astype(np.float64)
    top = exact.max(1)
    assert found["log_sums"] == pytest.approx(top + np.log(np.exp(exact - top[:, None]).sum(1)), abs=1e-5)
    shares = np.exp(exact @ exact.T / np.sqrt(width))
    expected_sum = (shares / shares.sum(1, keepdims=True)) @ exact
    np.testing.assert_allclose(found["attended"], expected_sum, atol=2e-3)


def test_a_processor_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTDECODE_CPU", "fast")
    for precision in PRECISIONS:
        with pytest.raises(ValueError, match=r"Unknown FASTDECODE_CPU: got 'fast'. Use one of auto, portable, vnni"):
            Matrix.of(np.ones((2, 2)), precision=precision)
    monkeypatch.setenv("FASTDECODE_CPU", "auto")
    assert cpu.layout() == (cpu.VNNI if cpu.has_vnni() else cpu.PORTABLE)


# --------------------------------------------------------------------------------------------------------- elementwise


@njit(error_model="numpy")
def everywhere(function, x):  # type: ignore[no-untyped-def]
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = function(x[i])
    return out


@njit(error_model="numpy")
def exponential(x):  # type: ignore[no-untyped-def]
    return elementwise.exponential(x)


def floats(low: float, high: float, count: int = 200_003) -> np.ndarray:
    return np.linspace(low, high, count).astype(np.float32)


def test_exponential_is_within_two_units_in_the_last_place() -> None:
    x = floats(-87.3, 88)
    expected = np.exp(x.astype(np.float64))
    error = np.abs(everywhere(exponential, x) - expected) / np.spacing(expected.astype(np.float32))
    assert error.max() < 2 and everywhere(exponential, np.zeros(1, np.float32)) == 1


def test_exponential_is_constant_outside_its_range_and_nan_of_nan() -> None:
    x = np.array([-np.inf, -3e38, -88, -87.3, 88, 89, 3e38, np.inf, np.nan], dtype=np.float32)
    found = everywhere(exponential, x)
    assert (found[:4] == found[3]).all() and (found[4:8] == found[4]).all() and np.isnan(found[8])
    assert 0 < found[3] < 1.3e-38 and 1.6e38 < found[4] < np.inf


def test_tangent_and_logistic_are_within_their_bounds() -> None:
    x = np.concatenate([floats(-20, 20), floats(-1e-3, 1e-3), np.float32([-3e38, -1e5, 1e5, 3e38, -np.inf, np.inf])])
    wide = x.astype(np.float64)
    assert np.abs(everywhere(elementwise.hyperbolic_tangent, x) - np.tanh(wide)).max() < 2e-7
    assert np.abs(everywhere(elementwise.logistic, x) - 1 / (1 + np.exp(-np.clip(wide, -700, 700)))).max() < 1e-7


def test_shares_are_those_of_softmax_and_never_subnormal() -> None:
    scores = np.random.default_rng(0).normal(size=(200, 23)).astype(np.float32) * np.float32(40)
    for row in scores:
        wide = np.exp(row.astype(np.float64) - row.max())
        elementwise.softmax(row, len(row))
        assert np.abs(row - wide / wide.sum()).max() < 1e-6
    assert (scores == 0).any() and scores[scores > 0].min() > 1e-30
    unknown = np.float32([0, np.nan, -100])
    elementwise.softmax(unknown, 3)
    assert np.isnan(unknown).all()


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-np.clip(x, -700, 700))),
    "gelu": lambda x: x * np.vectorize(lambda v: 0.5 * (1 + math.erf(v / 2**0.5)))(x),
    "gelu_new": lambda x: 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_within_their_bounds(name: str) -> None:
    x = np.concatenate(
        [floats(-20, 20, 20_003), floats(-1e-3, 1e-3, 2001), np.float32([-3e38, -1e4, 1e4, 3e38, 1e-40])]
    )
    found = np.tile(x, (2, 1))
    elementwise.activate(found, 1, len(x), elementwise.ACTIVATIONS[name])
    assert (found[1] == x).all(), "a row too many"
    wide = x.astype(np.float64)
    assert (np.abs(found[0] - ACTIVATIONS[name](wide)) <= 2e-7 * np.abs(wide)).all()


@pytest.mark.parametrize("width", [1, 2, 7, 16, 33, 512])
def test_layer_norm_is_that_of_float64(width: int) -> None:
    random = np.random.default_rng(width)
    x = (random.normal(size=(5, width + 3)) * 10.0 ** np.arange(-3, 2)[:, None] + 4).astype(np.float32)
    weight, bias = random.normal(size=(2, width)).astype(np.float32)
    wide = x[:, :width].astype(np.float64)
    deviations = wide - wide.mean(1, keepdims=True)
    expected = deviations / np.sqrt((deviations**2).mean(1, keepdims=True) + 1e-5) * weight + bias
    out = np.empty_like(x)
    elementwise.normalise(x, 5, width, weight, bias, np.float32(1e-5), out)
    assert np.abs(out[:, :width] - expected).max() < 1e-3  # the mean of entries near 4 that differ by 0.001
    assert np.abs(out[3:, :width] - expected[3:]).max() < 1e-5
    elementwise.normalise(x, 5, width, weight, bias, np.float32(1e-5), x)
    assert (x[:, :width] == out[:, :width]).all(), "in place"


@pytest.mark.parametrize("width", [1, 2, 7, 16, 33, 512])
def test_division_by_the_root_mean_square_is_that_of_float64(width: int) -> None:
    random = np.random.default_rng(width)
    x = (random.normal(size=(5, width + 3)) * 10.0 ** np.arange(-3, 2)[:, None] + 4).astype(np.float32)
    weight, epsilon = random.normal(size=width).astype(np.float32), np.float32(0.01)
    wide = x[:, :width].astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + float(epsilon)) * weight
    out = np.empty_like(x)
    elementwise.divide_by_root_mean_square(x, 5, width, weight, epsilon, out)
    assert np.abs(out[:, :width] - expected).max() < 2e-6 * np.abs(expected).max()
    elementwise.divide_by_root_mean_square(x, 5, width, weight, epsilon, x)
    assert (x[:, :width] == out[:, :width]).all(), "in place"


def test_halves_are_multiplied_and_what_is_behind_them_left() -> None:
    x = np.arange(1, 15, dtype=np.float32).reshape(2, 7)
    wanted = x.copy()
    wanted[:, :3] *= x[:, 3:6]
    elementwise.multiply_halves(x, 2, 3)
    assert (x == wanted).all()


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 200])
def test_softmax_is_that_of_float64(count: int) -> None:
    random = np.random.default_rng(count)
    for spread in (0.1, 5, 60, 3e4):
        scores = np.append(random.normal(size=count) * spread, 777).astype(np.float32)
        expected = np.exp(scores[:count].astype(np.float64) - scores[:count].max())
        elementwise.softmax(scores, count)
        assert np.abs(scores[:count] - expected / expected.sum()).max() < 5e-7 and scores[count] == 777
        assert np.isfinite(scores).all()


def test_softmax_gives_next_to_nothing_to_what_is_infinitely_far_below() -> None:
    scores = np.array([-np.inf, 3, -3e38], dtype=np.float32)
    elementwise.softmax(scores, 3)
    assert scores[1] == 1 and (scores[[0, 2]] < 2e-38).all()


@pytest.mark.parametrize("count", [1, 511, 512, 513, 1300])
def test_log_sum_is_that_of_float64(count: int) -> None:
    random = np.random.default_rng(count)
    for spread in (0.01, 3, 100):
        scores = np.append(random.normal(size=count) * spread, 1e9).astype(np.float32)[None]
        wide = scores[0, :count].astype(np.float64)
        expected = np.log(np.exp(wide - wide.max()).sum()) + wide.max()
        assert elementwise.log_sum(scores, 0, count) == pytest.approx(expected, abs=1e-6 * max(1, abs(expected)))
        assert elementwise.log_sum(scores, 0, count) >= wide.max()


# ----------------------------------------------------------------------------------------------------------- attention


def attended(query, keys, values, count, further):  # type: ignore[no-untyped-def]
    heads, _, size = keys.shape
    out = np.full(heads * size + 1, 5, dtype=np.float32)
    attend(query, keys, values, count, further, *scratch_of_slots(keys.shape[1]), out)
    assert out[-1] == 5
    return out[:-1]


def in_pages(random: np.random.Generator, page_slots: int, *caches: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Slots of caches (heads, slots, size) in pages of any order among pages of others (P, heads, page_slots, size)."""
    heads, slots, size = caches[0].shape
    needed = -(-slots // page_slots)
    pages, found = random.permutation(needed + 2)[:needed], []
    for cache in caches:
        paged = random.normal(size=(needed + 2, heads, page_slots, size)).astype(np.float32)
        for slot in range(slots):
            paged[pages[slot // page_slots], :, slot % page_slots] = cache[:, slot]
        found.append(paged)
    return pages, found


@pytest.mark.parametrize(("farthest", "count", "place"), [(3, 20, 19), (3, 20, 4), (30, 20, 11), (1, 1, 5)])
def test_biases_of_distances_are_added_to_scores(farthest: int, count: int, place: int) -> None:
    """In float64, one slot after the other; further slots stand where they say."""
    random = np.random.default_rng(count)
    heads, size, slots = 2, 5, count + 6
    query = random.normal(size=heads * size).astype(np.float32)
    keys, values = random.normal(size=(2, heads, slots, size)).astype(np.float32)
    biases = random.normal(size=(heads, 2 * farthest + 1)).astype(np.float32) * 3
    further, places = np.array([True, False, True, True, False, True]), count + random.integers(0, 4, size=6)
    out, factor = np.empty(heads * size, np.float32), np.float32(0.7)
    pages, (key_pages, value_pages) = in_pages(random, 4, keys, values)
    attend_from(
        query, key_pages, value_pages, pages, count, further, factor, biases, place, places, *scratch_of_slots(slots), out
    )  # fmt: skip
    seen = np.flatnonzero(np.concatenate([np.ones(count, bool), further]))
    distances = np.concatenate([np.arange(count), places])[seen] - place
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = keys[head, seen].astype(np.float64) @ query[part] * 0.7
        scores += biases[head, np.clip(distances, -farthest, farthest) + farthest]
        shares = np.exp(scores - scores.max())
        assert np.abs(out[part] - shares @ values[head, seen] / shares.sum()).max() < 1e-5


@pytest.mark.parametrize("size", [1, 4, 16, 19, 32, 48, 64, 80])
def test_attention_is_that_of_float64_and_further_slots_are_as_if_they_stood_together(size: int) -> None:
    random = np.random.default_rng(size)
    heads, slots = 3, 40
    query = random.normal(size=heads * size + 1).astype(np.float32) * 3
    keys, values = random.normal(size=(2, heads, slots, size)).astype(np.float32)
    nothing = np.zeros(0, dtype=bool)
    for count in (0, 1, 7, 16, 31):
        further = random.random(slots - count) < 0.4
        seen = np.concatenate([np.ones(count, dtype=bool), further])
        if not seen.any():
            continue
        found = attended(query, keys, values, count, further)
        chain = attended(query, *(np.ascontiguousarray(c[:, seen]) for c in (keys, values)), int(seen.sum()), nothing)
        assert (found == chain).all()
        q = query[:-1].reshape(heads, 1, size).astype(np.float64)
        scores = (q * keys[:, seen]).sum(2) / size**0.5
        shares = np.exp(scores - scores.max(1, keepdims=True))
        expected = (shares[:, :, None] * values[:, seen]).sum(1) / shares.sum(1, keepdims=True)
        assert np.abs(found.reshape(heads, size) - expected).max() < 2e-5


# ---------------------------------------------------------------------------------------------------------- candidates


def scorer(scores: np.ndarray) -> tuple[CompiledExact, np.ndarray]:
    """A projection and hidden vectors whose scores are exactly these (N, V)."""
    return CompiledExact(Matrix.of(np.ascontiguousarray(scores.T))), np.eye(len(scores), dtype=np.float32)


def ranked(scores: np.ndarray, k: int, banned: np.ndarray) -> tuple[list[int], list[float]]:
    """Ids and scores of one row by definition: best first, of equals the lowest id, without those banned."""
    left = [i for i in range(len(scores)) if i not in set(banned.tolist())]
    best = sorted(left, key=lambda i: (-scores[i], i))[:k]
    missing = k - len(best)
    return best + [-1] * missing, [*scores[best].tolist(), *[-np.inf] * missing]


@pytest.mark.parametrize("vocabulary", [1, 2, 63, 512, 513, 1100])
@pytest.mark.parametrize("rows", [1, 3, ROWS, ROWS + 1, 2 * ROWS + 5])
def test_candidates_come_best_first_and_of_equals_the_lowest_id(vocabulary: int, rows: int) -> None:
    random = np.random.default_rng((vocabulary, rows))
    scores = random.integers(-3, 3, size=(rows, vocabulary)).astype(np.float32)  # with many ties
    projection, hidden = scorer(scores)
    every, own = random.integers(0, vocabulary, 2), random.integers(-1, vocabulary, size=(rows, 3))
    for k in {1, min(2, vocabulary), min(5, vocabulary), vocabulary if rows == 3 else 1}:
        for banned in (None, every, every[None], own, np.zeros((rows, 0), dtype=np.int64)):
            found = projection.top_k(hidden, k, banned)
            for row in range(rows):
                refused = np.zeros(0) if banned is None else banned if banned.ndim == 1 else banned[row % len(banned)]
                assert (found.ids[row].tolist(), found.scores[row].tolist()) == ranked(scores[row], k, refused)
            assert (found.num_active == vocabulary).all() and found.log_normaliser is None


@pytest.mark.parametrize("seed", range(20))
def test_continuations_of_a_beam_are_those_of_a_stable_sort(seed: int) -> None:
    random = np.random.default_rng(seed)
    lanes, width, most = int(random.integers(1, 7)), int(random.integers(1, 9)), int(random.integers(1, 20))
    sums = random.integers(-4, 1, lanes).astype(float)
    scores = -np.sort(-random.integers(-4, 4, (lanes, width)).astype(np.float32), axis=1)
    normaliser = random.integers(0, 3, lanes).astype(float)
    normaliser[random.random(lanes) < 0.1] = np.nan
    ids = random.permutation(100)[: lanes * width].reshape(lanes, width)
    ids[np.arange(width) >= random.integers(0, width + 1, (lanes, 1))] = -1
    values = (sums[:, None] + (scores - normaliser[:, None])).reshape(-1)
    order = [i for i in np.argsort(-values, kind="stable") if ids.reshape(-1)[i] >= 0][:most]
    which, tokens, found = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most)
    count = top_k.best_continuations(sums, scores, normaliser, ids, which, tokens, found)
    assert count == len(order)
    assert which[:count].tolist() == [i // width for i in order]
    assert tokens[:count].tolist() == ids.reshape(-1)[order].tolist()
    np.testing.assert_array_equal(found[:count], values[order])


def test_all_banned_leaves_no_candidate() -> None:
    projection, hidden = scorer(np.zeros((2, 4), dtype=np.float32))
    found = projection.top_k(hidden, 3, np.arange(4), normalise=True)
    assert (found.ids == -1).all() and np.isneginf(found.scores).all()
    assert found.log_normaliser == pytest.approx(np.log(4))


def test_scores_that_are_no_numbers_are_no_candidates() -> None:
    scores = np.array([[np.nan, 1, np.nan, np.inf], [np.nan] * 4, [-np.inf, np.nan, 2, 0]], dtype=np.float32)
    projections = [CompiledExact(Matrix.of(np.zeros((4, 1)), row)) for row in scores]
    ids = [projection.top_k(np.ones((1, 1)), 4).ids[0].tolist() for projection in projections]
    assert ids == [[3, 1, -1, -1], [-1] * 4, [2, 3, -1, -1]]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_log_probabilities_and_normalisers_are_those_of_float64(precision: str) -> None:
    random = np.random.default_rng(2)
    weight, bias, hidden = random.normal(size=(700, 9)), random.normal(size=700), random.normal(size=(40, 9))
    projection = CompiledExact(Matrix.of(weight, bias, precision))
    scores = projection.matrix(hidden).astype(np.float64)
    normaliser = np.log(np.exp(scores).sum(1))
    found = projection.top_k(hidden, 2, np.array([3, 5]), normalise=True)
    assert np.abs(found.log_normaliser - normaliser).max() < 1e-5
    ids = random.integers(0, 700, size=(40, 6))
    expected = np.take_along_axis(scores, ids, 1) - normaliser[:, None]
    assert np.abs(projection.log_probs(hidden, ids) - expected).max() < 1e-5
    alone = [projection.log_probs(hidden[row : row + 1], ids[row : row + 1]) for row in range(40)]
    assert (np.concatenate(alone) == projection.log_probs(hidden, ids)).all()


def test_no_hidden_vectors_have_no_candidates() -> None:
    projection, _ = scorer(np.zeros((2, 4), dtype=np.float32))
    found = projection.top_k(np.zeros((0, 2)), 3, np.array([1]), normalise=True)
    assert found.ids.shape == found.scores.shape == (0, 3) and found.log_normaliser.shape == (0,)
    assert projection.log_probs(np.zeros((0, 2)), np.zeros((0, 5), dtype=np.int64)).shape == (0, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda p, h: p.top_k(h, 1, np.array([4])),
            "Unknown id among the banned tokens: got 4, .* from 0 to 3. Use the",
        ),
        (lambda p, h: p.top_k(h, 1, np.array([-2])), "among the banned tokens: got -2"),
        (
            lambda p, h: p.top_k(h, 1, np.zeros((3, 1), int)),
            r"are \(M,\) for all or \(N, M\): got \(3, 1\) for 2 hidden",
        ),
        (lambda p, h: p.top_k(h, 0), "needs k from 1 to the vocabulary's size 4, got 0"),
        (lambda p, h: p.top_k(h, 5), "needs k from 1 to the vocabulary's size 4, got 5"),
        (lambda p, h: p.top_k(h[:, :1], 1), r"takes hidden vectors of width 2, got \(2, 1\). Use the projection"),
        (lambda p, h: p.top_k(h[0], 1), r"takes hidden vectors of width 2, got \(2,\)"),
        (lambda p, h: p.log_probs(h, np.array([[0], [4]])), "among the tokens to score: got 4"),
        (lambda p, h: p.log_probs(h, np.array([[0], [-1]])), "among the tokens to score: got -1"),
        (lambda p, h: p.log_probs(h, np.array([[0]])), r"needs ids \(N, M\): got \(1, 1\) for 2 hidden vectors"),
    ],
)
def test_what_a_kernel_must_not_be_told(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(*scorer(np.zeros((2, 4), dtype=np.float32)))


def test_no_two_compiled_functions_share_a_name() -> None:
    """Kept by two processes and loaded by a third, one would be run in place of the other (numba issue 10486)."""
    known: dict[tuple[str, str], object] = {}
    for module in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Dispatcher):
                name = value.py_func.__module__, value.py_func.__qualname__
                assert known.setdefault(name, value) is value, name
    assert len(known) > 50
    codes = [matrices._code(kind, False) for kind in (FLOAT32, FLOAT16, BFLOAT16, INT16, INT8, INT8_FOURS)]
    codes += [matrices._code(INT8_FOURS, True)] if cpu.has_amx() else []
    assert len({code.address for code in codes}) == len(codes)


def test_a_change_of_any_kernel_makes_numba_compile_again(tmp_path: Path) -> None:
    """What a cached function calls stands in other files, which numba alone does not look at."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    sources = {
        "compiling": Path(compiling.__file__).read_text(encoding="utf-8"),
        "inner": "from numba import njit\n@njit\ndef inner(x):\n    return x + 1\n",
        "outer": "from inner import inner\nfrom compiling import kernel\n@kernel\ndef outer(x):\n    return inner(x)\n"
        "print(outer(1), sum(outer.stats.cache_hits.values()))\n",
    }
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")

    def run() -> str:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "outer.py"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert (run(), run()) == ("2 0", "2 1")
    (folder / "inner.py").write_text(sources["inner"].replace("+ 1", "+ 5"), encoding="utf-8")
    assert (run(), run()) == ("6 0", "6 1")
