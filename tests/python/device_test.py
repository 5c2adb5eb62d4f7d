"""Arrays on a GPU from Python's side, on the chip of the driver's stand-in that LUMEN_HIP_LIBRARY names: its memory is none that
this process could read. LUMEN_MODEL: a tiny one. package_check.py runs this where the stand-in is built."""
import ctypes
import gc
import os
import threading
import unittest
from pathlib import Path

import numpy as np

import lumen_compiler as lumen

MODEL = os.environ["LUMEN_MODEL"]
ROCM = 10
LAYER = """
fn layer(x: f32[B, D], w: f32[H, D], b: f32[H]) -> f32[B, H] {
  h[n, m] = sum(d) x[n, d] * w[m, d]
  return tanh(h + b)
}
"""


def can_be_read(address):
    """Whether this process may read there."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights = line.split()[:2]
        begin, end = (int(a, 16) for a in place.split("-"))
        if begin <= address < end:
            return "r" in rights
    raise AssertionError(f"{address:#x} is no memory")


class Tensor(ctypes.Structure):
    """DLPack's, as any library reads it."""
    _fields_ = [("data", ctypes.c_uint64), ("kind", ctypes.c_int32), ("id", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


def taken(capsule, kind=Managed):
    """Takes what a capsule holds, as who imports it does."""
    name, used = (b"dltensor", b"used_dltensor") if kind is Managed else (b"dltensor_versioned", b"used_dltensor_versioned")
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, name)
    taken.names.append(used)  # the capsule points to it
    api.PyCapsule_SetName(capsule, taken.names[-1])
    return kind.from_address(address), address


taken.names = []


class OnAnother:
    """An array of a device that is not there."""

    def __init__(self, kind, number):
        self.place = (kind, number)

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, **_):
        raise AssertionError("nobody takes it")


class OnHost:
    """What numpy before 2.1 cannot ask for: a copy in host memory."""

    def __init__(self, array, **options):
        self.array, self.options = array, options

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**{**options, "dl_device": (1, 0), **self.options})


class Watched:
    """An array that remembers how it was asked for."""

    def __init__(self, array):
        self.array, self.asked = array, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        self.asked.append(options)
        return self.array.__dlpack__(**options)


class Logits(unittest.TestCase):
    def setUp(self):
        self.model = lumen.load(MODEL, device="hip", tune=False)

    def test_lie_on_the_device_and_outlive_the_model(self):
        here = self.model.logits([1, 2, 3])
        there = self.model.logits([1, 2, 3], on_device=True)
        self.assertIsInstance(there, lumen.DeviceArray)
        self.assertEqual((there.shape, there.device, there.__dlpack_device__()), ((3, 65), "hip:0", (ROCM, 0)))
        self.assertFalse(can_be_read(there.address))
        self.assertIn("(3, 65) on hip:0", repr(there))
        managed, address = taken(there.__dlpack__(stream=1))
        tensor = managed.tensor
        self.assertEqual((tensor.data + tensor.offset, tensor.kind, tensor.id), (there.address, ROCM, 0))
        self.assertEqual((tensor.rank, tensor.shape[:2], tensor.strides[:2]), (2, [3, 65], [65, 1]))
        self.assertEqual((tensor.code, tensor.bits, tensor.lanes), (2, 32, 1))
        self.model.close()
        del self.model
        gc.collect()
        np.testing.assert_array_equal(there.numpy(), here)
        del there
        kept = threading.Thread(target=managed.deleter, args=[address])  # by whomever, wherever
        kept.start()
        kept.join()

    def test_last_and_the_processor(self):
        np.testing.assert_array_equal(self.model.logits("To", last=True, on_device=True).numpy(), self.model.logits("To", last=True))
        self.assertIsInstance(lumen.load(MODEL, cache="off").logits([1, 2], on_device=True), np.ndarray)

    def test_protocol(self):
        there = self.model.logits([1, 2], on_device=True)
        managed, address = taken(there.__dlpack__(max_version=(1, 3), stream=None), Versioned)
        self.assertEqual((managed.major, managed.flags, managed.tensor.data), (1, 0, there.address))
        managed.deleter(address)
        copied, address = taken(there.__dlpack__(max_version=(2, 0), copy=True, dl_device=(ROCM, 0)), Versioned)
        self.assertEqual((copied.major, copied.flags, copied.tensor.kind), (1, 2, ROCM))
        self.assertNotEqual(copied.tensor.data, there.address)
        self.assertFalse(can_be_read(copied.tensor.data))
        copied.deleter(address)
        kept, address = taken(there.__dlpack__(max_version=(0, 8), copy=False))
        self.assertEqual(kept.tensor.data, there.address)
        kept.deleter(address)
        there.__dlpack__()  # nobody takes it
        np.testing.assert_array_equal(np.from_dlpack(OnHost(there)), there.numpy())
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
            np.testing.assert_array_equal(np.from_dlpack(there, device="cpu"), there.numpy())
        with self.assertRaises(BufferError):
            there.__dlpack__(dl_device=(1, 0), copy=False)
        with self.assertRaises(BufferError):
            there.__dlpack__(dl_device=(2, 0))
        with self.assertRaises(TypeError):
            there.__dlpack__(stream="first")
        with self.assertRaises(TypeError):
            np.asarray(there)

    def test_given_back_while_the_model_works(self):
        arrays = [self.model.logits([1], on_device=True)]
        self.model.generate("a", max_tokens=2, temperature=0, on_text=lambda _: arrays.clear())
        self.assertEqual(arrays, [])


class Functions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.there = lumen.compile(LAYER, device="hip", tune=False)
        cls.here = lumen.compile(LAYER, cache="off")
        draw = np.random.default_rng(1)
        cls.arrays = [draw.standard_normal(s).astype(np.float32) for s in ((5, 7), (3, 7), (3,))]
        cls.squares = lumen.compile("fn squares(x: f32[N]) -> f32 = sum(i) x[i] * x[i]", device="hip", tune=False)
        cls.bias = cls.squares.vjp([cls.arrays[2] / 2], np.float32(1), on_device=True)[0]

    @classmethod
    def tearDownClass(cls):
        del cls.bias, cls.squares, cls.there, cls.here

    def test_arguments_results_and_gradients_stay(self):
        x, w, b = self.arrays
        bias = Watched(self.bias)
        y = self.there(x, w, bias)
        self.assertIsInstance(y, lumen.DeviceArray)
        self.assertGreater(bias.asked[0]["stream"], 2)  # one of Lumen's own, which its owner has wait
        np.testing.assert_allclose(y.numpy(), self.here(x, w, b), atol=1e-5)
        expected = self.here.vjp([x, w, b], y.numpy())
        for got, want in zip(self.there.vjp([x, w, self.bias], y), expected):
            self.assertFalse(can_be_read(got.address))
            np.testing.assert_allclose(got.numpy(), want, atol=1e-5)
        other = lumen.compile(LAYER, device="hip", tune=False)
        z = other(x, w, bias)
        other.close()
        np.testing.assert_array_equal(z.numpy(), y.numpy())

    def test_where_results_lie(self):
        x, w, b = self.arrays
        self.assertIsInstance(self.there(x, w, b), np.ndarray)
        self.assertIsInstance(self.there(x, w, b, on_device=True), lumen.DeviceArray)
        self.assertIsInstance(self.there(x, w, self.bias, on_device=False), np.ndarray)
        self.assertIsInstance(self.here(x, w, b, on_device=True), np.ndarray)
        self.assertIsInstance(self.there.vjp([x, w, self.bias], self.there(x, w, b), ["b"], on_device=False)[0], np.ndarray)
        np.testing.assert_allclose(self.squares.grad(self.bias).numpy(), 2 * b)

    def test_another_device(self):
        x, w, _ = self.arrays
        for function, array, names in ((self.here, self.bias, ("hip:0", "the processor", "x.cpu()")),
                                       (self.there, OnAnother(2, 1), ("cuda:1", "hip:0")),
                                       (self.there, OnAnother(ROCM, 1), ("hip:1", "hip:0")),
                                       (self.there, OnAnother(8, 0), ("kind 8", "hip:0"))):
            with self.assertRaises(lumen.Error) as told:
                function(x, w, array)
            for name in names:
                self.assertIn(name, str(told.exception))
        with self.assertRaises(lumen.Error):
            lumen.Format(name="q8_0").encode(self.bias)
        with self.assertRaises(lumen.Error):
            self.there(x, w, self.there(x, w, self.bias))  # another shape


if __name__ == "__main__":
    unittest.main()
