// Needs: cpu. Products with ranges known before they run, as code: the bits of the specification's loops, and of the
// graph evaluator.
#include "apps/classify/ranges/ranges.h"
#include "base/file/file.h"
#include "graph/elaborate/elaborate.h"
#include "lang/parser.h"
#include "tests/apps/classify/ranges/plain_ranges.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

graph::Graph ranged_code(const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(LUMEN_SOURCE_DIR) / "models" / "functions.lum";
  const lang::File functions = lang::parse_file(std::make_shared<Source>(Source{"functions.lum", read_file(path)}));
  const lang::File file = lang::parse_file(std::make_shared<Source>(Source{"test.lum", text}));
  graph::Scope scope;
  scope.files = {&functions, &file};
  graph::Graph g = graph::elaborate_function(scope, file.functions.back());
  for (const graph::ValueId v : g.inputs())
    if (g[v].attributes.name != "x") g[v].attributes.role = graph::Role::parameter;
  return g;
}

graph::RangeOptions options_for(int64_t samples, graph::RangeSource source, graph::RangePer per) {
  graph::RangeOptions out;
  out.samples = samples;
  out.source = source;
  out.per = per;
  return out;
}

TEST(RangedCode, HasTheBitsOfTheSpecification) {
  const graph::PlainCase c{
      .samples = 3, .height = 9, .width = 8, .channels = 6, .outputs = 20, .kernel = 3, .stride = 2, .padding = 1};
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> w(c.outputs * c.columns()), shift(c.outputs), x(c.samples * c.height * c.width * c.channels);
  for (float& one : w) one = 0.1F * normal(random);
  for (float& one : shift) one = 0.3F * normal(random);
  for (size_t i = 0; i < x.size(); ++i) x[i] = normal(random) * float(1 + 3 * (i * 3 / x.size()));
  const graph::Graph g = ranged_code(
      "fn f(x: f32[3, 9, 8, 6], w: f32[20, 3, 3, 6], b: f32[20]) = conv2d(x, w, stride = 2, padding = 1) + b");
  Engine engine(options());
  for (const auto source : {graph::RangeSource::fixed, graph::RangeSource::dynamic, graph::RangeSource::estimate})
    for (const auto per : {graph::RangePer::tensor, graph::RangePer::channel}) {
      SCOPED_TRACE(fmt::format("{} {}", int(source), int(per)));
      const bool by_channel = per == graph::RangePer::channel;
      const graph::PlainWeights weights = graph::quantized_weights(w, shift, c, by_channel);
      const graph::Graph ranged = graph::with_ranges(g, options_for(3, source, per));
      auto inputs = graph::plain_inputs("w", c, weights);
      inputs["x"] = graph::plain_tensor(x, {graph::Dim(3), graph::Dim(9), graph::Dim(8), graph::Dim(6)});
      for (const graph::ValueId v : ranged.inputs()) {
        const std::string& name = ranged[v].attributes.name;
        if (name.starts_with("value."))
          inputs[name] = graph::plain_tensor({name.ends_with(".low") ? -3.F : 4.F}, {graph::Dim(1)});
      }
      const auto program = run_once(engine, ranged, inputs);
      const std::vector<float> got =
          floats_of(program->result(ranged.result_names.empty() ? "" : ranged.result_names[0]));
      EXPECT_EQ(got, graph::plain_result(c, weights, x, source, by_channel, 1));
    }
}

// Memory for values: what the estimate takes beside static ranges is a few numbers for each channel; true ranges take
// all sums.
TEST(RangedCode, EstimatesTakeTheMemoryOfStaticRanges) {
  const graph::Graph g = ranged_code(
      "fn f(x: f32[2, 16, 16, 16], w: f32[32, 3, 3, 16], d: f32[4, 8192]) = "
      "linear(reshape(relu(conv2d(x, w, padding = 1)), [2, 8192]), d)");
  Engine engine(options());
  std::map<graph::RangeSource, int64_t> bytes;
  for (const auto source : {graph::RangeSource::fixed, graph::RangeSource::dynamic, graph::RangeSource::estimate})
    bytes[source] = engine.arena_bytes(graph::with_ranges(g, options_for(2, source, graph::RangePer::channel)), {});
  constexpr int64_t kPerChannel = 2 * 32 * 4, kSums = 2 * 256 * 32 * 4;
  EXPECT_LE(bytes[graph::RangeSource::estimate], bytes[graph::RangeSource::fixed] + 32 * kPerChannel);
  EXPECT_GE(bytes[graph::RangeSource::dynamic], bytes[graph::RangeSource::fixed] + kSums / 2);
  RecordProperty("bytes", fmt::format("{} {} {}", bytes[graph::RangeSource::fixed], bytes[graph::RangeSource::estimate],
                                      bytes[graph::RangeSource::dynamic]));
}

}  // namespace
}  // namespace lumen::run
