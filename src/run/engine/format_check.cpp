#include "run/engine/format_check.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "number/codec/codec.h"

namespace lumen::run {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::Tensor;
using graph::Type;
using graph::ValueId;

float normal(uint32_t seed, uint64_t i) {
  const double u = 1.0 - graph::uniform_random(seed, 1, 2 * i);
  const double v = graph::uniform_random(seed, 1, 2 * i + 1);
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
}

std::vector<float> gaussian_values(uint32_t seed, int64_t count) {
  std::vector<float> x(count);
  for (size_t i = 0; i < x.size(); ++i) x[i] = normal(seed, i);
  return x;
}

// Student t with 3 degrees of freedom: a normal over the root of a mean of three squares.
std::vector<float> heavy_values(uint32_t seed, int64_t count) {
  std::vector<float> x(count);
  for (size_t i = 0; i < x.size(); ++i) {
    const double a = normal(seed + 1, 3 * i), b = normal(seed + 1, 3 * i + 1), c = normal(seed + 1, 3 * i + 2);
    x[i] = static_cast<float>(normal(seed, i) / std::sqrt((a * a + b * b + c * c) / 3 + 1e-9));
  }
  return x;
}

// Shapes that cover a format's levels: several blocks, several tiles.
int64_t columns_for(const Format& f) {
  return std::max<int64_t>(f.block, f.tile_columns) * ((256 + f.block - 1) / f.block > 1 ? 2 : 1);
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]);
    size += static_cast<double>(x[i]) * x[i];
  }
  return size > 0 ? std::sqrt(difference / size) : 0;
}

Type f32_type(graph::Shape shape) {
  return {std::move(shape), {Scalar::f32, nullptr}};
}

Tensor tensor_of(Type type, const std::vector<float>& x) {
  Tensor t;
  t.type = std::move(type);
  t.values.assign(x.begin(), x.end());
  return t;
}

// y = x w^T with a weight stored in the format.
Graph forward_graph(const FormatRef& f, int64_t rows, int64_t n, int64_t k) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, f32_type({rows, k}));
  const ValueId w = b.input("w", Role::parameter, {{n, k}, {Scalar::f32, f}});
  g.results = {b.contract(x, b.cast(w, {Scalar::f32, nullptr}), "mk", "nk", "mn")};
  g.result_names = {"y"};
  return g;
}

// dX = dY w directly from the stored weight.
Graph backward_graph(const FormatRef& f, int64_t rows, int64_t n, int64_t k) {
  Graph g;
  Builder b(g);
  const ValueId dy = b.input("x", Role::data, f32_type({rows, n}));
  const ValueId w = b.input("w", Role::parameter, {{n, k}, {Scalar::f32, f}});
  g.results = {b.contract(dy, b.cast(w, {Scalar::f32, nullptr}), "mn", "nk", "mk")};
  g.result_names = {"y"};
  return g;
}

// The gradient of sum(c * round(w)) with respect to w: the straight-through rule.
Graph fake_graph(const FormatRef& f, int64_t n, int64_t k) {
  Graph g;
  Builder b(g);
  const ValueId c = b.input("c", Role::data, f32_type({n, k}));
  const ValueId w = b.input("w", Role::parameter, f32_type({n, k}));
  const ValueId rounded = b.cast(b.cast(w, {Scalar::f32, f}), {Scalar::f32, nullptr});
  const ValueId loss = b.reshape(b.reduce(b.mul(c, rounded), graph::Reduction::sum, {0, 1}), {});
  const std::vector<ValueId> gradients = graph::differentiate(g, loss, {w});
  g.results = {loss, gradients[0]};
  g.result_names = {"loss", "y"};
  return g;
}

// Runs a graph on the engine, activations in f32, and by the evaluator, with the same inputs. The results may differ by
// at most `tolerance` of the largest element.
CheckLine compare_with_oracle(Engine& engine, const std::string& what, const Graph& g,
                              const std::map<std::string, Tensor>& inputs, size_t result_index, double tolerance) {
  CheckLine line;
  line.what = what;
  line.machine = engine.device().machine().name;
  const std::vector<Tensor> expected = graph::eval(g, inputs);
  CompileOptions options;
  options.exact = true;
  const auto program = engine.compile(g, options);
  for (const auto& [name, t] : inputs) {
    const auto device = std::make_shared<DeviceTensor>(engine.device(), t.type);
    const std::vector<uint8_t> bytes = device_bytes(t);
    device->upload(bytes.data(), bytes.size());
    program->bind(name, device);
  }
  program->run();
  const Tensor& want = expected[result_index];
  std::vector<float> got(want.values.size());
  program->result(g.result_names[result_index])->download(got.data(), got.size() * sizeof(float));
  double largest = 0, worst = 0;
  for (const double v : want.values) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(got[i] - want.values[i]);
    if (!(d <= worst)) worst = d;
  }
  line.ok = worst <= tolerance * std::max(largest, 1e-30);
  line.detail = fmt::format("largest difference {:.2e} of {:.2e}", worst, largest);
  return line;
}

}  // namespace

FormatError format_error(const Format& f) {
  FormatError error;
  const int64_t columns = columns_for(f) * 4, rows = std::max<int64_t>(16, f.tile_rows);
  const auto gaussian = gaussian_values(7, rows * columns), heavy = heavy_values(9, rows * columns);
  error.gaussian = relative_error(gaussian, decode(f, encode(f, gaussian, rows, columns), rows, columns));
  error.heavy = relative_error(heavy, decode(f, encode(f, heavy, rows, columns), rows, columns));
  return error;
}

std::vector<CheckLine> check_codec(const Format& f) {
  std::vector<CheckLine> lines;
  const int64_t columns = columns_for(f), rows = 5;
  const auto add = [&](const std::string& what, bool ok, const std::string& detail) {
    lines.push_back({what, "", ok, detail});
  };
  const BlobLayout layout = blob_layout(f, rows, columns);
  add("codec: blob size", layout.total % 64 == 0 && layout.data_bytes == rows * columns / f.block * f.block_bytes,
      fmt::format("{} bytes for {} x {}", layout.total, rows, columns));
  if (!f.encodes()) {
    add("codec: decodes only", true, "no encoder is defined; files can be read, not written");
    return lines;
  }
  const std::vector<float> x = gaussian_values(3, rows * columns);
  const std::vector<uint8_t> blob = encode(f, x, rows, columns);
  const std::vector<float> y = decode(f, blob, rows, columns);
  const double error = relative_error(x, y);
  add("codec: rounding is near", error < 0.9, fmt::format("relative error {:.4f} on Gaussian data", error));
  const std::vector<float> again = decode(f, encode(f, y, rows, columns), rows, columns);
  const double drift = relative_error(y, again);
  // Formats with a fitted scale may find another scale in the second pass, but must not diverge.
  add("codec: encoding again stays", drift <= std::max(1e-6, error), fmt::format("relative change {:.2e}", drift));
  const std::vector<float> zeros(rows * columns, 0.0F);
  const std::vector<float> zeros_back = decode(f, encode(f, zeros, rows, columns), rows, columns);
  double largest = 0;
  for (float v : zeros_back) largest = std::max(largest, std::abs(static_cast<double>(v)));
  add("codec: zeros stay finite", std::isfinite(largest), fmt::format("largest value {:.2e}", largest));
  const std::vector<uint8_t> repeat = encode(f, x, rows, columns);
  add("codec: encode is a function", repeat == blob, "");
  bool single = true;
  for (int64_t c = 0; c < std::min<int64_t>(columns, 40); ++c) {
    const float one = decode_at(f, blob, rows, columns, rows - 1, c);
    const float all = y[(rows - 1) * columns + c];
    single = single && std::memcmp(&one, &all, sizeof one) == 0;
  }
  add("codec: single elements agree", single, "");
  return lines;
}

std::vector<CheckLine> check_kernels(Engine& engine, const FormatRef& f) {
  std::vector<CheckLine> lines;
  const std::string machine = engine.device().machine().name;
  const int64_t k = columns_for(*f), n = 17, rows = 3;
  const std::vector<float> w = gaussian_values(5, n * k);
  std::vector<uint8_t> blob(blob_layout(*f, n, k).total);
  // One failing kernel must not hide the others.
  const auto guarded = [&](const std::string& what, const auto& check) {
    try {
      lines.push_back(check());
    } catch (const Error& error) {
      lines.push_back({what, machine, false, error.what(), false});
    }
  };
  if (f->encodes()) {
    blob = encode(*f, w, n, k);
    guarded("encode", [&] {
      for (const std::vector<float>& data : {w, heavy_values(11, n * k), std::vector<float>(w.size(), 0.0F)}) {
        const std::vector<uint8_t> expected = encode(*f, data, n, k), got = engine.encode(f, data.data(), n, k);
        for (size_t i = 0; i < expected.size(); ++i) {
          if (i >= got.size() || got[i] != expected[i]) {
            return CheckLine{"encode", machine, false,
                             fmt::format("byte {} of {} differs from the codec", i, expected.size())};
          }
        }
      }
      return CheckLine{"encode", machine, true, "equal to the codec, bit for bit"};
    });
  }
  guarded("decode", [&] {
    const std::vector<float> expected = decode(*f, blob, n, k), got = engine.decode(f, blob.data(), n, k);
    const bool same =
        got.size() == expected.size() && std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) == 0;
    return CheckLine{"decode", machine, same, same ? "equal to the codec, bit for bit" : "differs from the codec"};
  });
  Tensor held;
  held.type = {{n, k}, {Scalar::f32, f}};
  held.blob = blob;
  for (const int64_t m : {int64_t{1}, rows}) {
    const std::string name = fmt::format("forward y = x w^T, {} row{}", m, m == 1 ? "" : "s");
    guarded(name, [&] {
      return compare_with_oracle(engine, name, forward_graph(f, m, n, k),
                                 {{"x", tensor_of(f32_type({m, k}), gaussian_values(13, m * k))}, {"w", held}}, 0,
                                 1e-5);
    });
  }
  guarded("backward dX", [&] {
    return compare_with_oracle(engine, "backward dX", backward_graph(f, rows, n, k),
                               {{"x", tensor_of(f32_type({rows, n}), gaussian_values(17, rows * n))}, {"w", held}}, 0,
                               1e-5);
  });
  if (f->encodes()) {
    guarded("straight-through dW", [&] {
      return compare_with_oracle(
          engine, "straight-through dW", fake_graph(f, n, k),
          {{"c", tensor_of(f32_type({n, k}), gaussian_values(19, n * k))}, {"w", tensor_of(f32_type({n, k}), w)}}, 1,
          1e-6);
    });
  }
  return lines;
}

}  // namespace lumen::run
