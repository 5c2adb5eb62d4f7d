"""The package from a user's side, on a tiny model that it trains itself. package_check.py builds it and runs this."""
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from pathlib import Path

import numpy as np

import lumen_compiler as lumen

try:
    import torch
except ImportError:
    torch = None

FOLDER = tempfile.TemporaryDirectory()
WORK = Path(FOLDER.name)
MODEL = WORK / "run/model.gguf"
TINY = {"shape": "tiny", "steps": 6, "seed": 3, "quiet": True}
EIGHTHS = """
format eighths : block 4 {
  q : i8[4]
  decode(i) = q[i] * 0.125
  fit(x) { }
  code(v) = clamp(rint(v * 8), -127, 127)
}
"""


def setUpModule():
    lumen.train(out=WORK / "run", **TINY)


def program(*words):
    """What the program itself prints."""
    done = subprocess.run([os.environ["LUMEN_PROGRAM"], *map(str, words)], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class Models(unittest.TestCase):
    def setUp(self):
        self.model = lumen.load(MODEL)

    def test_texts(self):
        ids = self.model.tokenize("To be")
        self.assertEqual(self.model.detokenize(ids), "To be")
        text = self.model.generate("ROMEO:", max_tokens=20, seed=5)
        self.assertEqual(text.tokens, 20)
        self.assertEqual(text.reason, "limit")
        self.assertEqual(str(text), program("run", "-q", "-m", MODEL, "-p", "ROMEO:", "-n", 20, "--seed", 5, "--no-display-prompt")[:-1])
        self.assertEqual("".join(self.model.stream("ROMEO:", max_tokens=20, seed=5)), text.text)
        pieces = []
        self.model.generate("ROMEO:", max_tokens=20, seed=5, on_text=pieces.append)
        self.assertEqual("".join(pieces), text.text)
        self.assertEqual(self.model.chat("To be", max_tokens=4, seed=1).tokens,
                         self.model.chat([{"role": "user", "content": "To be"}], max_tokens=4, seed=1).tokens)
        self.assertIn(self.model.generate("A: ", grammar='root ::= "yes" | "no"', seed=2).text, ("yes", "no"))
        self.assertIn(self.model.generate("A: ", json_schema={"enum": [True, None]}, seed=2).text.strip(), ("true", "null"))

    def test_weights_are_mapped_or_copied(self):
        with lumen.load(MODEL, mmap=False) as copied:
            self.assertEqual(copied.generate("ROMEO:", max_tokens=8, seed=5).text,
                             self.model.generate("ROMEO:", max_tokens=8, seed=5).text)

    def test_a_stream_that_is_left_stops(self):
        for piece in self.model.stream("ROMEO:", max_tokens=100000, context=8000):
            break
        self.assertEqual(self.model.generate("ROMEO:", max_tokens=3, seed=1).tokens, 3)

    def test_a_program_may_end_while_it_listens(self):
        code = f"import lumen_compiler as lumen\ns = lumen.load({str(MODEL)!r}).stream('ROMEO:', max_tokens=10**6, context=20000)\nprint(next(s))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_memory_does_not_grow(self):
        def held():
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        square = lumen.compile("fn square(x: f32[N]) -> f32[N] = x * x")
        x = np.ones(1 << 18, np.float32)

        def work():
            for _ in range(20):
                self.model.logits([1] * 30)
                square.vjp([square(x)], x)
                self.model.generate("ROMEO:", max_tokens=4, seed=1)

        work()
        before = held()
        work()
        work()
        self.assertLess(held() - before, 30 << 20)  # one array more for each round would be 40 MB and more

    def test_logits_are_not_copied(self):
        logits = self.model.logits("To be, or not to be", exact=True)
        self.assertEqual(logits.shape, (19, self.model.vocabulary))
        self.assertEqual(logits.dtype, np.float32)
        np.testing.assert_allclose(logits[-1], self.model.logits("To be, or not to be", last=True, exact=True), atol=1e-4)
        kept = self.model.logits([1, 2, 3])
        before = kept.copy()
        self.model.logits([4, 5, 6])
        self.model.close()
        gc.collect()
        np.testing.assert_array_equal(kept, before)
        if torch:
            self.assertEqual(torch.from_dlpack(kept).data_ptr(), kept.ctypes.data)

    def test_vectors_and_perplexity(self):
        vectors = self.model.embed(["To be", "or not"])
        self.assertEqual(vectors.shape[0], 2)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(self.model.embed("To be"), vectors[0], atol=1e-5)
        (WORK / "text.txt").write_text("To be, or not to be, that is the question. " * 30)
        told = program("perplexity", "-q", "-m", MODEL, "-f", WORK / "text.txt", "-c", 64)
        mine = self.model.perplexity((WORK / "text.txt").read_text(), length=64)
        self.assertIn(f"perplexity {mine.perplexity:.4f} +/- {mine.error:.5f}", told)

    def test_threads_share_a_model_and_python_runs_on(self):
        texts, counted = [], [0]
        threads = [threading.Thread(target=lambda: texts.append(self.model.generate("ROMEO:", max_tokens=40, seed=5).text))
                   for _ in range(3)]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            counted[0] += 1
            time.sleep(0.001)
        self.assertEqual(len(set(texts)), 1)
        self.assertGreater(counted[0], 3)

    def test_mistakes(self):
        m = self.model
        cases = [lambda: lumen.load("nowhere.gguf"), lambda: lumen.load(MODEL, device="abacus"), lambda: lumen.load(MODEL, threads=-1),
                 lambda: lumen.load(MODEL, adapters=["nowhere"]), lambda: lumen.load(MODEL, formats=["format x"]),
                 lambda: m.generate("a", temprature=1), lambda: m.generate("a", seed=1.5), lambda: m.generate("a", stop=object()),
                 lambda: m.generate("a", temperature=float("nan")), lambda: m.generate(""), lambda: m.generate("a", grammar="("),
                 lambda: m.generate("x" * 100000), lambda: m.generate("a", logit_bias={"x": 1}),
                 lambda: m.chat([{"role": 3}]), lambda: m.chat([object()]), lambda: m.chat({}), lambda: m.logits([]),
                 lambda: m.logits([-1]), lambda: m.logits([2**40]), lambda: m.logits(["x"]), lambda: m.logits([1] * 100000),
                 lambda: m.detokenize([70000]), lambda: m.embed(["a"], pooling="most"), lambda: m.embed([""]),
                 lambda: m.perplexity("short"), lambda: lumen.command("nonsense"), lambda: lumen.command(),
                 lambda: lumen.command("a\0b"), lambda: lumen.command("train", "--ranks", "2", "--out", str(WORK / "ranks")),
                 lambda: lumen.quantize(MODEL, WORK / "q.gguf", "q4_00"), lambda: lumen.evaluate(MODEL, "nonsense"),
                 lambda: lumen.train(out=WORK / "x", shape="enormous"), lambda: lumen.train(out=WORK / "run", **TINY)]
        for i, case in enumerate(cases):
            with self.subTest(case=i), self.assertRaises(lumen.Error) as told:
                case()
            self.assertIn(told.exception.exit_code, (1, 2), i)
        with self.assertRaises(lumen.Error) as told:
            m.generate("a", temprature=1)
        self.assertIn("temperature", told.exception.hint)
        again = pickle.loads(pickle.dumps(told.exception))
        self.assertEqual((str(again), again.hint, again.exit_code), (str(told.exception), told.exception.hint, 2))
        m.close()
        for call in (lambda: m.generate("a"), lambda: m.logits([1]), lambda: m.tokenize("a")):
            with self.assertRaises(lumen.Error):
                call()
        with self.assertRaises(TypeError):
            lumen.load(MODEL).tokenize(3)
        with self.assertRaises(ZeroDivisionError):
            lumen.load(MODEL).generate("a", on_text=lambda piece: 1 / 0)


class Functions(unittest.TestCase):
    LAYER = """
fn layer(x: f32[B, D], w: f32[H, D], b: f32[H]) -> f32[B, H] {
  h[n, m] = sum(d) x[n, d] * w[m, d]
  return tanh(h + b)
}
"""

    def arrays(self):
        draw = np.random.default_rng(1)
        return [draw.standard_normal(s).astype(np.float32) for s in ((5, 7), (3, 7), (3,))]

    def test_values_and_gradients(self):
        f = lumen.compile(self.LAYER)
        x, w, b = self.arrays()
        self.assertEqual(f.arguments, ["x", "w", "b"])
        y = f(x, w, b)
        np.testing.assert_allclose(y, np.tanh(x @ w.T + b), atol=1e-5)
        c = np.random.default_rng(2).standard_normal(y.shape).astype(np.float32)
        h = c * (1 - y * y)
        for got, expected in zip(f.vjp([x, w, b], c), (h @ w, h.T @ x, h.sum(0))):
            np.testing.assert_allclose(got, expected, atol=1e-5)
        np.testing.assert_allclose(f.vjp([x, w, b], c, wanted=["b"])[0], h.sum(0), atol=1e-5)
        f(x[:2].copy(), w, b)

    def test_one_number_and_several_results(self):
        f = lumen.compile("fn squares(x: f32[N]) -> f32 = sum(i) x[i] * x[i]")
        x = np.arange(5, dtype=np.float32)
        self.assertEqual(float(f(x)), 30)
        np.testing.assert_allclose(f.grad(x), 2 * x)
        two = lumen.compile("fn two(x: f32[N]) -> f32[N], f32 {\n  return 2 * x, sum(i) x[i]\n}")
        a, b = two(x)
        np.testing.assert_allclose(a, 2 * x)
        self.assertEqual(float(b), 10)
        np.testing.assert_allclose(two.vjp([x], [x, np.float32(3)])[0], 2 * x + 3)
        same = lumen.compile("fn same(x: f32[N], y: f32[N]) -> f32[N], f32[N] {\n  return x, x\n}")
        np.testing.assert_array_equal(same(x, 2 * x), [x, x])
        np.testing.assert_array_equal(same.vjp([x, x], [x, 3 * x]), [4 * x, 0 * x])
        ids = lumen.compile("fn pick(t: f32[V, D], i: i32[N]) -> f32[N, D]\n  y[n, d] = t[i[n], d]\n")
        t = np.arange(12, dtype=np.float32).reshape(4, 3)
        i = np.array([2, 0, 2], np.int32)
        np.testing.assert_array_equal(ids(t, i), t[i])
        np.testing.assert_array_equal(ids.vjp([t, i], np.ones((3, 3), np.float32))[0][:, 0], [1, 0, 2, 0])

    def test_mistakes(self):
        f = lumen.compile(self.LAYER)
        x, w, b = self.arrays()
        cases = [lambda: f(), lambda: f(x, w), lambda: f(x, w, b, b), lambda: f(x.astype(np.float64), w, b), lambda: f(x.T, w, b),
                 lambda: f(x, w[:, :-1].copy(), b), lambda: f(x[:, ::2], w, b), lambda: f([1, 2], w, b), lambda: f(None, w, b),
                 lambda: f(x, w, np.zeros((0,), np.float32)), lambda: f(x, w, np.int32(3)), lambda: f("x", w, b), lambda: f(x[::-1], w, b),
                 lambda: f.grad(x, w, b), lambda: f.vjp([x, w, b], [x]), lambda: f.vjp([x, w, b], []), lambda: f.vjp([x], b),
                 lambda: f.vjp([x, w, b], np.ones((5, 3), np.float32), wanted=["q"]),
                 lambda: f.vjp([x, w, b], np.ones((5, 3), np.float32), wanted=[7]),
                 lambda: f.vjp([x, w, b], np.ones((5, 3), np.float32), wanted=[]),
                 lambda: lumen.compile("fn f(x: f32[N]) -> f32[N] = x +"), lambda: lumen.compile("nonsense"), lambda: lumen.compile(""),
                 lambda: lumen.compile("fn f(x: f32[N]) -> f32[N] = y"), lambda: lumen.compile(self.LAYER, "lair"),
                 lambda: lumen.compile("fn f(x: " + "(" * 5000 + ")"), lambda: lumen.compile("fn f(x: f16[N]) -> f16[N] = x")]
        for i, case in enumerate(cases):
            with self.subTest(case=i), self.assertRaises(lumen.Error):
                case()
        f.close()
        with self.assertRaises(lumen.Error):
            f(x, w, b)

    @unittest.skipIf(torch is None, "no torch")
    def test_torch(self):
        f = lumen.compile(self.LAYER).torch()
        mine = [torch.from_numpy(a.copy()).requires_grad_() for a in self.arrays()]
        theirs = [torch.from_numpy(a.copy()).requires_grad_() for a in self.arrays()]
        y = f(*mine)
        z = torch.tanh(theirs[0] @ theirs[1].T + theirs[2])
        torch.testing.assert_close(y, z, atol=1e-5, rtol=1e-5)
        (y.exp().sum() * 0.5).backward()
        (z.exp().sum() * 0.5).backward()
        for a, b in zip(mine, theirs):
            torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-5)
        frozen = [t.detach() for t in mine]
        frozen[1].requires_grad_()
        f(*frozen).sum().backward()
        self.assertIsNone(frozen[0].grad)
        self.assertIsNotNone(frozen[1].grad)
        with self.assertRaises(lumen.Error):
            f(frozen[0].double(), *frozen[1:])


class Formats(unittest.TestCase):
    def test_a_format_of_a_text(self):
        f = lumen.Format(EIGHTHS)
        self.assertEqual((f.name, f.block, f.bits), ("eighths", 4, 8.0))
        x = np.array([[0.3, -1, 2.06, 100]], np.float32)
        np.testing.assert_array_equal(f.round(x), [[0.25, -1, 2, 15.875]])
        q = lumen.Format(name="q8_0")
        y = np.random.default_rng(3).standard_normal((4, 64)).astype(np.float32)
        self.assertLess(np.abs(q.round(y) - y).max(), 0.02)
        for case in (lambda: f.encode(y[:, :3].copy()), lambda: f.encode(y[0]), lambda: f.decode(b"", 1, 4), lambda: f.decode(b"x", -1, 4),
                     lambda: f.decode(b"x", 2**62, 2**62), lambda: lumen.Format(name="q4_00"), lambda: lumen.Format("format"),
                     lambda: lumen.Format(), lambda: f.encode(y.astype(np.int32))):
            with self.assertRaises(lumen.Error):
                case()

    def test_a_model_in_it(self):
        table = lumen.quantize(MODEL, WORK / "eighths.gguf", lumen.Format(EIGHTHS), quiet=True)
        self.assertIn("eighths", table)
        model = lumen.load(WORK / "eighths.gguf", formats=[EIGHTHS])
        self.assertEqual(model.generate("ROMEO:", max_tokens=3, seed=1).tokens, 3)
        carried = lumen.load(WORK / "eighths.gguf")  # the file carries the text of its format
        np.testing.assert_array_equal(carried.logits([1, 2]), model.logits([1, 2]))


class Commands(unittest.TestCase):
    def test_the_same_bytes_as_the_program(self):
        lumen.quantize(MODEL, WORK / "mine.gguf", "q8_0", quiet=True)
        program("quantize", "-q", MODEL, WORK / "its.gguf", "q8_0")
        self.assertEqual((WORK / "mine.gguf").read_bytes(), (WORK / "its.gguf").read_bytes())
        program("train", "-q", "--shape", "tiny", "--steps", 6, "--seed", 3, "--out", WORK / "its-run")
        self.assertEqual(MODEL.read_bytes(), (WORK / "its-run/model.gguf").read_bytes())
        with lumen.Trainer(out=WORK / "steps", **TINY) as trainer:
            losses = [step.loss for step in trainer]
            told = trainer.finish()
            with self.assertRaises(lumen.Error):
                trainer.step()
        self.assertEqual(len(losses), 6)
        self.assertGreater(losses[0], losses[-1])
        self.assertIn("model.gguf", told["output"])
        self.assertEqual((WORK / "steps/model.gguf").read_bytes(), MODEL.read_bytes())

    def test_a_trainer_that_is_left(self):
        trainer = lumen.Trainer(out=WORK / "left", **TINY)
        self.assertEqual(trainer.step().step, 1)
        self.assertGreater(trainer.evaluate(2), 1)
        saved = trainer.save()
        trainer.step()
        trainer.close()
        with self.assertRaises(lumen.Error):
            trainer.step()
        self.assertTrue((saved / "trainer_state.json").exists())
        lumen.train(out=WORK / "left", resume=str(WORK / "left"), quiet=True)
        self.assertEqual((WORK / "left/model.gguf").read_bytes(), MODEL.read_bytes())

    def test_evaluate(self):
        (WORK / "capitals.toml").write_text('name = "capitals"\nkind = "choice"\ndata = "capitals.jsonl"\nmetrics = ["acc"]\n'
                                            'prompt = "The capital of {{country}} is"\nchoices = "cities"\nanswer = "{{right}}"\n')
        (WORK / "capitals.jsonl").write_text('{"country": "Korea", "cities": ["Seoul", "Busan"], "right": 0}\n'
                                             '{"country": "France", "cities": ["Lyon", "Paris"], "right": 1}\n')
        mine = lumen.evaluate(MODEL, "capitals", task_file=WORK / "capitals.toml", quiet=True)
        program("eval", "-q", "-m", MODEL, "--tasks", "capitals", "--task-file", WORK / "capitals.toml", "-o", WORK / "its.json")
        its = json.loads((WORK / "its.json").read_text())
        for figures in (mine, its):
            figures["results"]["capitals"].pop("seconds")
        self.assertEqual(mine["results"], its["results"])

    def test_commands_return_what_they_print(self):
        self.assertIn("lumen 0.", lumen.command("--version"))
        self.assertIn("q4_0", lumen.command("quantize", "--help"))
        done = subprocess.run([sys.executable, "-m", "lumen_compiler", "--version"], capture_output=True, text=True)
        self.assertEqual(done.stdout, program("--version"))
        self.assertEqual(subprocess.run([sys.executable, "-m", "lumen_compiler", "nonsense"], capture_output=True).returncode, 2)


class CtrlC(unittest.TestCase):
    """Each in a process of its own, which gets SIGINT once it says that it has begun."""

    def stopped(self, code, wait_for=None):
        code = "import lumen_compiler as lumen, sys, time\ntry:\n" + textwrap.indent(textwrap.dedent(code), "  ") + \
            "\nexcept KeyboardInterrupt:\n  print('stopped', flush=True)\n  sys.exit(7)\n"
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline().strip(), "begins")
        until = time.monotonic() + 120
        while wait_for and not wait_for() and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.3)
        begin = time.monotonic()
        child.send_signal(signal.SIGINT)
        out = child.communicate(timeout=120)[0]
        self.assertIn("stopped", out)
        self.assertEqual(child.returncode, 7)
        return time.monotonic() - begin

    def test_generating(self):
        seconds = self.stopped(f"""
            m = lumen.load({str(MODEL)!r})
            m.generate("a", max_tokens=2)
            print("begins", flush=True)
            for _ in range(10**9): m.generate("ROMEO:", max_tokens=100, ignore_end=True)
        """)
        self.assertLess(seconds, 10)

    def test_training(self):
        out = WORK / "stopped"
        metrics = out / "metrics.jsonl"
        self.stopped(f"""
            print("begins", flush=True)
            lumen.train(out={str(out)!r}, shape="tiny", steps=100000, quiet=True)
        """, lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 3)
        self.assertTrue(list(out.glob("checkpoint-*")))
        self.assertFalse(list(out.glob(".*.part")))

    def test_a_step(self):
        self.stopped(f"""
            t = lumen.Trainer(out={str(WORK / 'loop')!r}, shape="tiny", steps=100000, quiet=True)
            t.step()
            print("begins", flush=True)
            while True: t.step()
        """)


if __name__ == "__main__":
    unittest.main()
