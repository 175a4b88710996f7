"""Products of a few rows with a weight matrix, for the torch engine.

torch's ordinary product takes as long for a few rows together as for each of them alone; oneDNN, with the weight packed once
in its own layout, reads the weight once for all of them. A single row of a small matrix is still faster with the ordinary
product, so that small matrices are kept in both forms, and large ones only packed.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LARGE = 1 << 19
"""Entries of a matrix from which a single row is no slower with the packed weight."""
WORTHWHILE = 1 << 18
"""Multiply-adds from which oneDNN's fixed cost pays."""
ROWS = 16
"""Number of rows for which the packed layout is optimised; it works for any number."""


@dataclass(frozen=True)
class Product:
    """``x @ matrix + bias``, or without a bias.

    Attributes
    ----------
    matrix : tensor (columns, rows) or None
        The weight transposed; None where only `packed` is kept.
    packed : oneDNN tensor or None
    bias : tensor (rows,) or None
    """

    matrix: Tensor | None
    packed: Any
    bias: Tensor | None
    shape: tuple[int, int]

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, *, copy: bool = True) -> "Product":
        """The product with a weight (rows, columns); without `copy` oneDNN reads the weight in its present layout."""
        rows, columns = weight.shape
        if not copy:
            return cls(weight.T, weight if _packs(weight) and weight.is_contiguous() else None, bias, (rows, columns))
        packed = None
        if _packs(weight):
            with torch.inference_mode():
                packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
        matrix = None if packed is not None and weight.numel() >= LARGE else weight.T.contiguous()
        return cls(matrix, packed, bias, (rows, columns))

    @property
    def memory_bytes(self) -> int:
        """Bytes of the bias and of all forms of the weight."""
        forms = (self.matrix is not None) + (self.packed is not None)
        entry_bytes = 4 if self.matrix is None else self.matrix.element_size()  # packed ones are float32
        return (self.shape[0] * self.shape[1] * forms + self.shape[0] * (self.bias is not None)) * entry_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles use the plain weight, since oneDNN's layout has no storage."""
        weight = self.matrix.T if self.matrix is not None else self.packed.to_dense()
        return Product.of, (weight, self.bias)

    def __call__(self, x: Tensor) -> Tensor:
        """(..., columns) -> (..., rows)."""
        flat = x.reshape(-1, x.shape[-1])
        if self.matrix is None or (self.packed is not None and flat.shape[0] * self.matrix.numel() > WORTHWHILE):
            y = torch.ops.mkldnn._linear_pointwise.default(flat, self.packed, self.bias, "none", [], "")
        else:
            y = flat @ self.matrix if self.bias is None else torch.addmm(self.bias, flat, self.matrix)
        return y.view(*x.shape[:-1], self.shape[0])


def _packs(weight: Tensor) -> bool:
    """Whether oneDNN supports this weight."""
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32 and torch.backends.mkldnn.is_available()
    operations = torch.ops.mkldnn
    return fits and hasattr(operations, "_linear_pointwise") and hasattr(operations, "_reorder_linear_weight")
