#include "model/compress/round/output_error.h"

#include "base/check.h"
#include "graph/ir/build.h"

namespace lumen::model::compress {
namespace {

graph::Type matrix(int64_t rows, int64_t columns) {
  return {{graph::Dim(rows), graph::Dim(columns)}, {}};
}

run::DeviceTensorRef upload(run::Engine& engine, std::span<const float> x, int64_t rows, int64_t columns) {
  auto tensor = std::make_shared<run::DeviceTensor>(engine.device(), matrix(rows, columns));
  LUMEN_CHECK(x.size_bytes() == static_cast<size_t>(tensor->bytes()), "{} numbers of {} x {}", x.size(), rows, columns);
  tensor->upload(x.data(), x.size_bytes());
  return tensor;
}

}  // namespace

run::DeviceTensorRef OutputErrors::keep(std::span<const float> gram, int64_t columns) {
  engine_.require_memory("second moments", {{"to measure errors by", columns * columns * 4}});
  return upload(engine_, gram, columns, columns);
}

run::Program& OutputErrors::program(int64_t rows, int64_t columns, Kind kind, const FormatRef& format) {
  std::shared_ptr<run::Program>& slot = programs_[{rows, columns, kind, format ? format->hash.hex() : ""}];
  if (!slot) {
    graph::Graph g;
    graph::Builder b(g);
    auto x = b.input("x", graph::Role::data, matrix(rows, columns));
    if (kind == Kind::sums_of_rounded) {
      graph::Type type = matrix(rows, columns);
      type.element = {Scalar::f32, format};
      x = b.sub(x, b.cast(b.input("blob", graph::Role::data, type), {}));
    }
    const auto h = b.input("h", graph::Role::data, matrix(columns, columns));
    const auto product = b.contract(x, h, "rk", "kj", "rj");
    g.results = {kind == Kind::product ? product : b.reduce(b.mul(product, x), graph::Reduction::sum, {1})};
    g.result_names = {"product"};
    run::CompileOptions options;
    options.exact = true;
    slot = engine_.compile(g, options);
  }
  return *slot;
}

namespace {

std::vector<float> result_of(run::Program& program) {
  program.run();
  const run::DeviceTensorRef result = program.result("product");
  std::vector<float> out(result->bytes() / sizeof(float));
  result->download(out.data(), result->bytes());
  program.unbind();
  return out;
}

}  // namespace

std::vector<float> OutputErrors::run(run::Program& program, std::span<const float> e, int64_t rows, int64_t columns,
                                     const run::DeviceTensorRef& gram) {
  program.bind("x", upload(engine_, e, rows, columns));
  program.bind("h", gram);
  return result_of(program);
}

std::vector<double> OutputErrors::of(std::span<const float> e, int64_t rows, int64_t columns,
                                     const run::DeviceTensorRef& gram) {
  const std::vector<float> by_row = run(program(rows, columns, Kind::sums), e, rows, columns, gram);
  return {by_row.begin(), by_row.end()};
}

std::vector<double> OutputErrors::of_rounded(const run::DeviceTensorRef& w, const FormatRef& format,
                                             std::span<const uint8_t> blob, const run::DeviceTensorRef& gram) {
  const graph::Shape& shape = w->type().shape;
  auto rounded = std::make_shared<run::DeviceTensor>(engine_.device(), graph::Type{shape, {Scalar::f32, format}});
  rounded->upload(blob.data(), blob.size());
  run::Program& p = program(shape[0].number(), shape[1].number(), Kind::sums_of_rounded, format);
  p.bind("x", w);
  p.bind("blob", rounded);
  p.bind("h", gram);
  const std::vector<float> by_row = result_of(p);
  return {by_row.begin(), by_row.end()};
}

std::vector<float> OutputErrors::product(std::span<const float> e, int64_t rows, int64_t columns,
                                         const run::DeviceTensorRef& gram) {
  return run(program(rows, columns, Kind::product), e, rows, columns, gram);
}

}  // namespace lumen::model::compress
