// Graphs and tensors for the tests of the engine.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/check.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/text.h"
#include "run/engine/engine.h"

namespace lumen::run {

using graph::Tensor;
using graph::Type;

// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lumen-test-XXXXXX").string();
    LUMEN_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline Engine::Options options(const std::string& folder = "off", int threads = 2) {
  Engine::Options o;
  o.cache_folder = folder;
  o.threads = threads;
  return o;
}

inline Tensor random_tensor(const Type& type, uint64_t seed, int64_t limit = 0) {
  Tensor t{type, {}, {}};
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  t.values.resize(static_cast<size_t>(graph::elements(type.shape).number()));
  for (double& x : t.values)
    x = limit > 0 ? static_cast<double>(random() % static_cast<uint64_t>(limit)) : static_cast<double>(normal(random));
  return t;
}

// f32, i32, u32, i64 and formats: what graphs take in and hand out.
inline std::vector<uint8_t> to_bytes(const Tensor& t) {
  if (t.type.element.format) return t.blob;
  std::vector<uint8_t> out(static_cast<size_t>(graph::byte_size(t.type)));
  const auto width = static_cast<size_t>(scalar_bytes(t.type.element.scalar));
  for (size_t i = 0; i < t.values.size(); ++i) {
    uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(t.values[i]));
    if (t.type.element.scalar == Scalar::f32) bits = std::bit_cast<uint32_t>(static_cast<float>(t.values[i]));
    std::memcpy(out.data() + i * width, &bits, width);
  }
  return out;
}

inline std::vector<uint8_t> bytes_of(const DeviceTensorRef& t) {
  std::vector<uint8_t> out(static_cast<size_t>(t->bytes()));
  t->download(out.data(), t->bytes());
  return out;
}

inline std::vector<float> floats_of(const DeviceTensorRef& t) {
  const std::vector<uint8_t> bytes = bytes_of(t);
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

inline DeviceTensorRef upload(Engine& engine, const Tensor& t) {
  auto tensor = std::make_shared<DeviceTensor>(engine.device(), t.type);
  const std::vector<uint8_t> bytes = to_bytes(t);
  tensor->upload(bytes.data(), static_cast<int64_t>(bytes.size()));
  return tensor;
}

inline Type f32(std::vector<int64_t> dims) {
  Type t;
  for (const int64_t d : dims) t.shape.emplace_back(d);
  return t;
}
inline Type scalars(Scalar s, std::vector<int64_t> dims) {
  Type t = f32(std::move(dims));
  t.element.scalar = s;
  return t;
}

// Two layers with a gather in front: h = tanh(table[x] w1^T + b), y = h w2^T, loss = sum of y over the last axis.
inline graph::Graph small_network() {
  graph::Graph g;
  graph::Builder b(g);
  using graph::Role;
  const auto x = b.input("x", Role::data, scalars(Scalar::i32, {5, 7}));
  const auto table = b.input("table", Role::parameter, f32({11, 24}));
  const auto w1 = b.input("w1", Role::parameter, f32({40, 24}));
  const auto bias = b.input("bias", Role::parameter, f32({40}));
  const auto w2 = b.input("w2", Role::parameter, f32({11, 40}));
  const auto e = b.gather(table, x);
  const auto h = b.unary(ScalarOp::tanh_, b.add(b.contract(e, w1, "btk", "nk", "btn"), bias));
  const auto y = b.contract(h, w2, "btk", "nk", "btn");
  const auto rows = b.reduce(b.unary(ScalarOp::exp_, y), graph::Reduction::sum, {2});
  g.results = {y, b.unary(ScalarOp::log_, rows)};
  g.result_names = {"logits", "norm"};
  return g;
}

inline std::map<std::string, Tensor> random_inputs(const graph::Graph& g, uint64_t seed, int64_t limit = 11) {
  std::map<std::string, Tensor> inputs;
  for (const graph::ValueId v : g.inputs()) {
    const Type& t = g[v].type;
    inputs[g[v].attributes.name] = random_tensor(t, ++seed, is_float(t.element.scalar) ? 0 : limit);
  }
  return inputs;
}

// Binds everything and runs once.
inline std::shared_ptr<Program> run_once(Engine& engine, const graph::Graph& g,
                                         const std::map<std::string, Tensor>& inputs,
                                         const CompileOptions& compile = {}) {
  auto program = engine.compile(g, compile);
  for (const std::string& name : program->input_names()) program->bind(name, upload(engine, inputs.at(name)));
  program->run();
  return program;
}

inline void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], tolerance * (1 + std::abs(want[i]))) << "element " << i;
}

}  // namespace lumen::run
