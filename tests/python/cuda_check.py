#!/usr/bin/env python3
"""Arrays that Lumen and PyTorch share on a real GPU: values against PyTorch's, no way through the host, lifetimes, streams.

usage: cuda_check.py [MODEL]      MODEL: trained here where none is given (tiny); exit code 77: no PyTorch, or no GPU for it

PYTHONPATH holds the package with its library (docs/guide/python.md says how that is made).
"""
import gc
import json
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

try:
    import torch
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: PyTorch has no GPU")
    sys.exit(77)

import numpy as np

import lumen_compiler as lumen

KIND = 10 if torch.version.hip else 2
DEVICE = "hip:0" if torch.version.hip else "cuda:0"
FOLDER = tempfile.TemporaryDirectory()
WORK = Path(FOLDER.name)
MODEL = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None
LAYER = """
fn layer(x: f32[B, D], w: f32[H, D], b: f32[H]) -> f32[B, H] {
  h[n, m] = sum(d) x[n, d] * w[m, d]
  return tanh(h + b)
}
"""
torch.backends.cuda.matmul.allow_tf32 = False


def layer_of_torch(x, w, b):
    return torch.tanh(x @ w.T + b)


def arrays(rows=64, width=128, out=96):
    draw = torch.Generator(device="cuda").manual_seed(1)
    shapes = ((rows, width), (out, width), (out,))
    return [torch.randn(s, generator=draw, device="cuda") / 8 for s in shapes]


def copied(work):
    """Bytes that the driver copied while `work` ran, by direction ("DtoH", "HtoD", "DtoD"); None where nobody can say."""
    from torch.profiler import ProfilerActivity, profile
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        work()
        torch.cuda.synchronize()
    recorded.export_chrome_trace(str(WORK / "trace.json"))
    events = json.loads((WORK / "trace.json").read_text())["traceEvents"]
    if not any(e.get("cat") == "kernel" for e in events):
        return None
    out = {"DtoH": 0, "HtoD": 0, "DtoD": 0}
    for e in events:
        for direction in out:
            if e.get("cat") == "gpu_memcpy" and direction in e.get("name", ""):
                out[direction] += int(e["args"].get("bytes", 0))
    return out


def setUpModule():
    global MODEL
    if MODEL is None:
        lumen.train(out=WORK / "run", shape="tiny", steps=5, length=128, quiet=True)
        MODEL = WORK / "run/model.gguf"


class Logits(unittest.TestCase):
    def setUp(self):
        self.model = lumen.load(MODEL, device=DEVICE)
        self.ids = self.model.tokenize("To be, or not to be, that is the question") * 3

    def test_the_same_bits(self):
        for last in (False, True):
            here = self.model.logits(self.ids, last=last)
            there = self.model.logits(self.ids, last=last, on_device=True)
            self.assertEqual(there.__dlpack_device__(), (KIND, 0))
            tensor = torch.from_dlpack(there)
            self.assertEqual((tensor.device, tensor.dtype), (torch.device("cuda:0"), torch.float32))
            self.assertEqual((tensor.data_ptr(), tensor.shape, tensor.is_contiguous()), (there.address, here.shape, True))
            np.testing.assert_array_equal(tensor.cpu().numpy(), here)
            np.testing.assert_array_equal(there.numpy(), here)

    def test_outlive_the_model(self):
        here = self.model.logits(self.ids)
        tensor = torch.from_dlpack(self.model.logits(self.ids, on_device=True))
        self.model.close()
        del self.model
        gc.collect()
        other = lumen.load(MODEL, device=DEVICE)
        other.logits(self.ids[::-1])
        np.testing.assert_array_equal(tensor.cpu().numpy(), here)
        del tensor, other

    def test_memory_is_given_back(self):
        self.model.logits(self.ids, on_device=True)
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        size = torch.from_dlpack(self.model.logits(self.ids, on_device=True)).nbytes
        for _ in range(200):
            torch.from_dlpack(self.model.logits(self.ids, on_device=True))
        gc.collect()
        self.assertLess(before - torch.cuda.mem_get_info()[0], max(64 << 20, 20 * size))

    def test_nothing_goes_through_the_host(self):
        self.model.logits(self.ids, on_device=True)
        held = []
        bytes_ = copied(lambda: held.append(self.model.logits(self.ids, on_device=True)))
        if bytes_ is None:
            self.skipTest("the profiler sees no kernels")
        print(f"logits {held[0].shape} on the device: copied {bytes_}")
        size = torch.from_dlpack(held[0]).nbytes
        self.assertGreaterEqual(bytes_["DtoD"], size)
        self.assertLess(bytes_["DtoH"] + bytes_["HtoD"], size)

    def test_protocol(self):
        there = self.model.logits(self.ids, on_device=True)
        one, two = torch.from_dlpack(there), torch.from_dlpack(there)
        self.assertEqual(one.data_ptr(), two.data_ptr())
        again = torch.from_dlpack(there.__dlpack__(copy=True, max_version=(0, 8)))
        self.assertNotEqual(again.data_ptr(), one.data_ptr())
        self.assertTrue(torch.equal(again, one))
        for stream in (None, 1, 2, -1, torch.cuda.Stream().cuda_stream):
            self.assertTrue(torch.equal(torch.from_dlpack(there.__dlpack__(stream=stream)), one))
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
            np.testing.assert_array_equal(np.from_dlpack(there, device="cpu"), there.numpy())
        with self.assertRaises(BufferError):
            there.__dlpack__(dl_device=(1, 0), copy=False)
        with self.assertRaises(TypeError):
            np.asarray(there)

    def test_may_be_given_back_while_it_is_read(self):
        expected = torch.from_numpy(self.model.logits(self.ids))
        tensor = torch.from_dlpack(self.model.logits(self.ids, on_device=True))
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
            copy = tensor.clone()
        del tensor  # the kernel that reads it has not begun
        for _ in range(5):
            self.model.logits(self.ids[::-1], on_device=True)
        side.synchronize()
        self.assertTrue(torch.equal(copy.cpu(), expected))

    def test_given_back_by_threads_while_the_model_works(self):
        held = [torch.from_dlpack(self.model.logits(self.ids, on_device=True)) for _ in range(30)]
        text = self.model.generate("To be", max_tokens=60, seed=1, ignore_end=True).text
        writer = threading.Thread(target=lambda: said.append(self.model.generate("To be", max_tokens=60, seed=1, ignore_end=True).text))
        said = []
        writer.start()
        while held:
            held.pop()
            time.sleep(0.001)
        writer.join()
        self.assertEqual(said, [text])


class Functions(unittest.TestCase):
    def setUp(self):
        self.f = lumen.compile(LAYER, device=DEVICE)

    def test_values_and_gradients(self):
        x, w, b = arrays()
        y = self.f(x, w, b)
        self.assertIsInstance(y, lumen.DeviceArray)
        want = layer_of_torch(x, w, b)
        torch.testing.assert_close(torch.from_dlpack(y), want, atol=1e-4, rtol=1e-4)
        theirs = [t.clone().requires_grad_() for t in (x, w, b)]
        weight = torch.randn_like(want)
        layer_of_torch(*theirs).backward(weight)
        for got, t in zip(self.f.vjp([x, w, b], weight), theirs):
            torch.testing.assert_close(torch.from_dlpack(got), t.grad, atol=2e-4, rtol=1e-3)
        self.assertIsInstance(self.f(x, w, b, on_device=False), np.ndarray)
        np.testing.assert_array_equal(self.f(x.cpu(), w.cpu(), b.cpu()), y.numpy())
        self.f.close()
        torch.testing.assert_close(torch.from_dlpack(y), want, atol=1e-4, rtol=1e-4)

    def test_autograd(self):
        f = self.f.torch()
        mine, theirs = ([t.clone().requires_grad_() for t in arrays()] for _ in range(2))
        a = f(mine[0] * 2, mine[1], mine[2])
        b = layer_of_torch(theirs[0] * 2, theirs[1], theirs[2])
        self.assertEqual(a.device, b.device)
        (a.exp().sum() * 0.5).backward()
        (b.exp().sum() * 0.5).backward()
        for m, t in zip(mine, theirs):
            self.assertEqual(m.grad.device, torch.device("cuda:0"))
            torch.testing.assert_close(m.grad, t.grad, atol=5e-4, rtol=1e-3)
        frozen = [t.detach() for t in mine]
        frozen[1].requires_grad_()
        f(*frozen).sum().backward()
        self.assertIsNone(frozen[0].grad)
        self.assertIsNotNone(frozen[1].grad)
        here = [t.detach().cpu().requires_grad_() for t in mine]
        f(*here).sum().backward()  # a function on the GPU takes what lies here, too
        self.assertEqual(here[0].grad.device.type, "cpu")

    def test_trains(self):
        f = self.f.torch()
        x, w, b = arrays()
        target = layer_of_torch(x, w, b)
        mine = [torch.zeros_like(w).requires_grad_(), torch.zeros_like(b).requires_grad_()]
        optimizer = torch.optim.Adam(mine, lr=0.02)
        losses = []
        for _ in range(60):
            optimizer.zero_grad()
            loss = (f(x, *mine) - target).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 20)

    def test_waits_for_the_stream_that_writes(self):
        x, w, b = arrays()
        want = layer_of_torch(torch.full_like(x, 0.25), w, b)
        for _ in range(3):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                late = torch.zeros_like(x)
                torch.cuda._sleep(100_000_000)
                late.fill_(0.25)
                y = torch.from_dlpack(self.f(late, w, b))
                torch.testing.assert_close(y, want, atol=1e-4, rtol=1e-4)

    def test_nothing_goes_through_the_host(self):
        x, w, b = arrays(2048, 512, 512)
        out = torch.ones(2048, 512, device="cuda")
        results = [self.f(x, w, b), *self.f.vjp([x, w, b], out)]

        def work():
            results[:] = [self.f(x, w, b), *self.f.vjp([x, w, b], out)]

        bytes_ = copied(work)
        if bytes_ is None:
            self.skipTest("the profiler sees no kernels")
        print(f"a layer and its gradients, {x.nbytes} bytes of x: copied {bytes_}")
        self.assertGreaterEqual(bytes_["DtoD"], 3 * x.nbytes)
        self.assertLess(bytes_["DtoH"] + bytes_["HtoD"], 1 << 16)

    def test_another_device(self):
        x, w, b = arrays()
        with self.assertRaises(lumen.Error) as told:
            lumen.compile(LAYER)(x, w, b)
        self.assertIn(DEVICE, str(told.exception))
        self.assertIn("the processor", str(told.exception))
        with self.assertRaises(lumen.Error):
            self.f.torch()(x, w, b.cpu())
        with self.assertRaises(lumen.Error):
            self.f(x.double(), w, b)
        with self.assertRaises(lumen.Error):
            self.f(x.T, w, b)
        with self.assertRaises(lumen.Error):
            self.f(x.requires_grad_(), w, b)

    @unittest.skipIf(torch.cuda.device_count() < 2, "one GPU")
    def test_two_gpus(self):
        x, w, b = arrays()
        with self.assertRaises(lumen.Error) as told:
            self.f(x.to("cuda:1"), w, b)
        self.assertIn(DEVICE, str(told.exception))
        self.assertIn(DEVICE.replace("0", "1"), str(told.exception))
        torch.cuda.set_device(1)
        try:
            y = torch.from_dlpack(self.f(x, w, b))
            self.assertEqual(torch.cuda.current_device(), 1)
            self.assertEqual(torch.zeros(1, device="cuda").device.index, 1)
            second = lumen.compile(LAYER, device=DEVICE.replace("0", "1"))
            self.assertEqual(torch.cuda.current_device(), 1)
            z = torch.from_dlpack(second(x.to("cuda:1"), w.to("cuda:1"), b.to("cuda:1")))
            self.assertEqual((y.device.index, z.device.index), (0, 1))
            torch.testing.assert_close(y.cpu(), z.cpu(), atol=1e-5, rtol=1e-5)
        finally:
            torch.cuda.set_device(0)

    def test_time(self):
        x, w, b = arrays(2048, 1024, 1024)
        here = [t.cpu().numpy() for t in (x, w, b)]

        def seconds(call):
            for _ in range(10):
                call()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(50):
                call()
            torch.cuda.synchronize()
            return (time.perf_counter() - begin) / 50

        print(f"a layer of 2048 x 1024 by 1024 x 1024: {seconds(lambda: self.f(x, w, b)) * 1e6:.0f} us on the device, "
              f"{seconds(lambda: self.f(*here)) * 1e6:.0f} us from and to the host, {seconds(lambda: layer_of_torch(x, w, b)) * 1e6:.0f} us PyTorch")


if __name__ == "__main__":
    unittest.main(verbosity=2)
