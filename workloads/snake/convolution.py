"""A convolution that computes a whole small picture as one tile, with a fifth of the multiplications.

Winograd's minimal filtering (Lavin and Gray 2016, arXiv:1509.09308): a correlation of 3 weights with 7 numbers gives 5
and takes 7 multiplications instead of 15, so one of 3 x 3 with 7 x 7 takes 49 instead of 225. Picture and kernel are
brought into the space of the 49 products, and the products back from it, with small constant matrices. Knows no game.
"""

from typing import Any, Final

import keras
import numpy as np
from keras import layers, ops
from numpy.typing import NDArray

__all__ = ["OneTileConvolution"]

_TAPS: Final = 3
_OUTPUTS: Final = 5
_INPUTS: Final = _OUTPUTS + _TAPS - 1
_POINTS: Final = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5)


@keras.saving.register_keras_serializable("gpusched")
class OneTileConvolution(layers.Conv2D):  # type: ignore[misc]
    """Conv2D of pictures [n, 7, 7, channels] with kernels of 3 x 3: the same weights and, up to rounding, results.

    In float32 it is off by some 0.00005 of what it returns. Where products are rounded more (bfloat16, or TF32, which
    TensorFlow lets newer GPUs use) the error is some fifty times theirs: use Conv2D there.
    """

    def build(self, input_shape: Any) -> None:
        """Make the weights. Raises ValueError for pictures or a kernel of another size."""
        sizes = (tuple(input_shape[1:3]), self.kernel_size, tuple(self.compute_output_shape(input_shape)[1:3]))
        if sizes != ((_INPUTS, _INPUTS), (_TAPS, _TAPS), (_OUTPUTS, _OUTPUTS)):
            raise ValueError(
                f"this convolution makes 5 x 5 of 7 x 7 with 3 x 3, not {sizes[2]} of {sizes[0]} with {sizes[1]}"
            )
        super().build(input_shape)

    def convolution_op(self, inputs: Any, kernel: Any) -> Any:
        """Return the convolution [n, 5, 5, filters] without its bias."""
        channels, filters = inputs.shape[-1], kernel.shape[-1]
        of_inputs = _in_both(_OF_INPUTS, ops.transpose(inputs, (1, 2, 0, 3)))
        of_kernel = _in_both(_OF_KERNEL, ops.reshape(kernel, (_TAPS, _TAPS, 1, -1)))
        product = ops.matmul(
            ops.reshape(of_inputs, (_INPUTS**2, -1, channels)), ops.reshape(of_kernel, (_INPUTS**2, channels, filters))
        )
        result = _in_both(_TO_OUTPUTS, ops.reshape(product, (_INPUTS, _INPUTS, -1, filters)))
        return ops.transpose(ops.reshape(result, (_OUTPUTS, _OUTPUTS, -1, filters)), (2, 0, 1, 3))


def _in_both(transform: NDArray[np.float32], plane: Any) -> Any:
    """Transform the rows and the columns of `plane` [rows, columns, ...]; return [new rows, new columns, all others].

    Each product has three axes, as oneDNN has a fast kind for; its other kind takes 40 ms when it is first used.
    """
    new, old = transform.shape
    rows = ops.matmul(transform[None], ops.reshape(plane, (1, old, -1)))
    return ops.matmul(transform[None], ops.reshape(rows, (new, old, -1)))


def _transforms() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Return what brings seven inputs [7, 7], three taps [7, 3] and seven products [5, 7] to where they are needed.

    Multiplying polynomials by their values at `_POINTS` and infinity gives a convolution; its transpose is the
    correlation wanted here (Toom and Cook). Powers of two even the rows out: without them float32 loses more.
    """
    to_outputs, of_kernel = _values(_OUTPUTS).T, _values(_TAPS)
    of_inputs = np.linalg.inv(_values(_INPUTS)).T
    sizes = [np.linalg.norm(to_outputs, axis=0), np.linalg.norm(of_kernel, axis=1), np.linalg.norm(of_inputs, axis=1)]
    mean = np.prod(sizes, axis=0) ** (1 / 3)
    outer, inner = 2 ** np.round(np.log2(mean / sizes[0])), 2 ** np.round(np.log2(mean / sizes[2]))
    return (
        (of_inputs * inner[:, None]).astype(np.float32),
        (of_kernel / (outer * inner)[:, None]).astype(np.float32),
        (to_outputs * outer).astype(np.float32),
    )


def _values(terms: int) -> NDArray[np.float64]:
    """Return what takes a polynomial of `terms` coefficients to its values at the points; at infinity, to its last."""
    return np.vstack([np.vander(_POINTS, terms, increasing=True), np.eye(terms)[-1]])


_OF_INPUTS, _OF_KERNEL, _TO_OUTPUTS = _transforms()
