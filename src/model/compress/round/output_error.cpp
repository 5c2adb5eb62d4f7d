#include "model/compress/round/output_error.h"

#include "base/check.h"
#include "graph/ir/build.h"

namespace lumen::model {
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

run::Program& OutputErrors::program(int64_t rows, int64_t columns, bool sums) {
  std::shared_ptr<run::Program>& slot = programs_[{rows, columns, sums}];
  if (!slot) {
    graph::Graph g;
    graph::Builder b(g);
    const auto x = b.input("x", graph::Role::data, matrix(rows, columns));
    const auto h = b.input("h", graph::Role::data, matrix(columns, columns));
    const auto product = b.contract(x, h, "rk", "kj", "rj");
    g.results = {sums ? b.reduce(b.mul(product, x), graph::Reduction::sum, {1}) : product};
    g.result_names = {"product"};
    run::CompileOptions options;
    options.exact = true;
    slot = engine_.compile(g, options);
  }
  return *slot;
}

std::vector<float> OutputErrors::run(run::Program& program, std::span<const float> e, int64_t rows, int64_t columns,
                                     const run::DeviceTensorRef& gram) {
  program.bind("x", upload(engine_, e, rows, columns));
  program.bind("h", gram);
  program.run();
  const run::DeviceTensorRef result = program.result("product");
  std::vector<float> out(result->bytes() / sizeof(float));
  result->download(out.data(), result->bytes());
  return out;
}

std::vector<double> OutputErrors::of(std::span<const float> e, int64_t rows, int64_t columns,
                                     const run::DeviceTensorRef& gram) {
  const std::vector<float> by_row = run(program(rows, columns, true), e, rows, columns, gram);
  return {by_row.begin(), by_row.end()};
}

std::vector<float> OutputErrors::product(std::span<const float> e, int64_t rows, int64_t columns,
                                         const run::DeviceTensorRef& gram) {
  return run(program(rows, columns, false), e, rows, columns, gram);
}

}  // namespace lumen::model
