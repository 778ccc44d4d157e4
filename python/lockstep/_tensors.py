"""NumPy arrays and the library's tensors: each sees the other's memory, where the layout allows it."""
import ctypes

import numpy

from ._library import MAX_DIMS, LockstepError, Shape, lk, raise_error

# lk_dtype, in the order of LK_DTYPE_LIST in <lockstep/tensor.h>; NumPy has no bf16.
_DTYPES = [numpy.float32, numpy.float64, None, numpy.float16, numpy.int64, numpy.int32, numpy.uint8, numpy.bool_]
_BF16, _F32 = 2, 0
# Dtypes of NumPy that a tensor holds as another one.
_WIDENED = {numpy.dtype(numpy.int8): numpy.int32, numpy.dtype(numpy.int16): numpy.int32,
            numpy.dtype(numpy.uint16): numpy.int32, numpy.dtype(numpy.uint32): numpy.int64}


def as_array(value):
    """A contiguous array of a dtype that tensors have; a copy only if `value` is not one already. Takes arrays, numbers, lists,
    and tensors of other libraries on the CPU (DLPack)."""
    if not isinstance(value, numpy.ndarray) and hasattr(value, "__dlpack__"):
        value = numpy.from_dlpack(value.detach() if hasattr(value, "detach") else value)
    array = numpy.asarray(value)
    if not isinstance(value, numpy.ndarray) and array.dtype == numpy.float64:
        array = array.astype(numpy.float32)  # of plain numbers, as torch.tensor does
    array = array.astype(_WIDENED.get(array.dtype, array.dtype), copy=False)
    if not any(known is not None and array.dtype == known for known in _DTYPES):
        raise LockstepError("an array of dtype %s cannot become a tensor" % array.dtype)
    if array.ndim > MAX_DIMS:
        raise LockstepError("a tensor has at most %d axes, the array has %d" % (MAX_DIMS, array.ndim))
    return numpy.require(array, requirements=["C", "W"])


def borrow(array):
    """A tensor over the array's memory, which must outlive it."""
    number = [i for i, known in enumerate(_DTYPES) if known is not None and array.dtype == known][0]
    tensor = lk.lk_tensor_borrow(number, Shape(array.ndim, (ctypes.c_int64 * MAX_DIMS)(*array.shape)), array.ctypes.data)
    if not tensor:
        raise_error()
    return tensor


def view(tensor, owner):
    """An array over a tensor's memory. The array holds `owner`, whose life the memory has. bf16 becomes a copy in float32."""
    t = tensor.contents
    if t.dtype == _BF16:
        wide = lk.lk_tensor_cast(tensor, _F32)
        if not wide:
            raise_error()
        return view(wide, Freed(wide)).copy()
    dtype = numpy.dtype(_DTYPES[t.dtype])
    shape = tuple(t.shape.dim[i] for i in range(t.shape.rank))
    if 0 in shape:
        return numpy.zeros(shape, dtype)
    strides = tuple(t.stride[i] * dtype.itemsize for i in range(t.shape.rank))
    nbytes = sum((n - 1) * s for n, s in zip(shape, strides)) + dtype.itemsize
    memory = (ctypes.c_char * nbytes).from_address(t.data)
    memory.owner = owner
    return numpy.ndarray(shape, dtype, memory, 0, strides)


class Freed:
    """Frees a tensor with itself."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __del__(self):
        if lk is not None:
            lk.lk_tensor_free(self.tensor)
