// A document with something of everything.
#pragma once

#include "model/report/compression/compression.h"

namespace lumen::model::report {

inline CompressionReport small_document() {
  CompressionReport r;
  r.model = "tiny";
  r.created = "2026-11-23";
  r.text = "the built-in text";
  r.budget = "4.2bpw";
  r.device = "cpu";
  r.base = {"tiny-f16.gguf", 16000, 16, {}};
  r.base.quality.ppl = 5.5;
  r.base.quality.tokens_per_s = 40;
  r.result = CompressionReport::Whole{"tiny-mixed.gguf", 4200, 4.2, {}};
  r.result->quality.ppl = 5.75;
  r.result->quality.ppl_error = 0.01;
  r.result->quality.kl = 0.0225;
  r.result->quality.kl_error = 0.0005;
  r.result->quality.same_top = 0.9375;
  r.predicted = 0.021;
  r.bound = 0.021;
  r.proved = true;
  const auto point = [&](const char* label, const char* strategy, int64_t bytes, double kl, bool chosen) {
    CompressionReport::Point p{label, strategy, bytes, bytes / 1000.0, {}, chosen};
    p.quality.kl = kl;
    r.points.push_back(p);
  };
  point("five", "plain", 5500, 0.01, false);
  point("four", "plain", 4500, 0.03, false);
  point("mixed", "chosen by measurement", 4200, 0.0225, true);
  point("two", "rtn", 2100, 1.5, false);
  r.front = {{2100, 2.1, 0.9}, {4200, 4.2, 0.021}, {8500, 8.5, 0.0001}};
  r.front_exact = true;
  for (int64_t layer = 0; layer < 3; ++layer)
    for (const char* role : {"attention_q", "ffn_down"}) {
      CompressionReport::Tensor t;
      t.name = fmt::format("blk.{}.{}", layer, role);
      t.role = role;
      t.layer = layer;
      t.format = layer == 1 ? "wide" : "narrow";
      t.strategy = "rtn";
      t.bytes = layer == 1 ? 800 : 400;
      t.bits = layer == 1 ? 8 : 4;
      t.error = 0.05 * (layer + 1);
      t.weighted_error = 0.04 * (layer + 1);
      t.reason = "its error is spread evenly";
      t.candidates = {{"narrow", 400, 0.004}, {"wide", 800, 0.0001}};
      if (layer == 2) t.histogram = CompressionReport::Histogram{{-1, 0, 0.5, 1}, {3, 5, 2}, {4, 4, 2}};
      r.tensors.push_back(t);
    }
  CompressionReport::Tensor output;
  output.name = "output.weight";
  output.role = "output";
  output.format = "wide";
  output.bytes = 900;
  output.bits = 8;
  r.tensors.push_back(output);
  r.spikes = {{"blk.0.ffn_down", 12, false}, {"blk.1.ffn_down", 480, true}};
  r.tasks = {{"tiny-mixed.gguf", "pairs", "acc", 0.625, 0.01}};
  r.stages = {{"calibrate", 62}, {"solve", 0.5}};
  r.notes = {"one row was left as it is"};
  return r;
}

}  // namespace lumen::model::report
