#include "model/compress/score/product_time.h"

#include <algorithm>
#include <vector>

#include "base/stopwatch.h"
#include "graph/ir/build.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kApart = int64_t{64} << 20;  // bytes of copies: more than caches hold
constexpr int kRuns = 9;

}  // namespace

double ProductTimes::ms(const FormatRef& format, int64_t rows, int64_t columns) {
  const auto [slot, is_new] = known_.try_emplace({format->hash.hex(), rows, columns}, 0.0);
  if (!is_new) return slot->second;
  const graph::Type type{{graph::Dim(rows), graph::Dim(columns)}, {Scalar::f32, format}};
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", graph::Role::data, {{graph::Dim(1), graph::Dim(columns)}, {}});
  const auto w = b.input("w", graph::Role::parameter, type);
  g.results = {b.contract(x, b.cast(w, {Scalar::f32, nullptr}), "rk", "nk", "rn")};
  g.result_names = {"y"};
  const auto program = engine_.compile(g, {});
  const std::vector<float> zeros(rows * columns);
  const std::vector<uint8_t> blob = engine_.encode(format, zeros.data(), rows, columns);
  std::vector<run::DeviceTensorRef> copies;
  for (int64_t bytes = 0; copies.size() < 2 || (bytes < kApart && copies.size() < 16);
       bytes += graph::byte_size(type)) {
    copies.push_back(std::make_shared<run::DeviceTensor>(engine_.device(), type));
    copies.back()->upload(blob.data(), blob.size());
  }
  auto in = std::make_shared<run::DeviceTensor>(engine_.device(), program->input_type("x"));
  in->upload(zeros.data(), columns * sizeof(float));
  program->bind("x", in);
  std::vector<double> times;
  for (int k = 0; k < kRuns + 2; ++k) {
    program->bind("w", copies[k % copies.size()]);
    const Stopwatch watch;
    program->run();
    std::vector<float> out(rows);
    program->result("y")->download(out.data(), rows * sizeof(float));
    if (k >= 2) times.push_back(1e3 * watch.seconds());
  }
  std::ranges::nth_element(times, times.begin() + kRuns / 2);
  return slot->second = times[kRuns / 2];
}

}  // namespace lumen::model::compress
