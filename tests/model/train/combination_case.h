// Graphs of recipes that name formats: kernels for machines, each distinct one synthesized once; kernels of this
// processor against the evaluator. Some of all there are by default; LUMEN_COMBINATIONS=all takes every format of the
// library and every machine.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>
#include <string>

#include "base/error.h"
#include "graph/match/access.h"
#include "kernel/machine/machine.h"
#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"
#include "tests/model/tiny.h"
#include "tests/run/graphs.h"

namespace lumen::model::train {

inline bool takes_all_combinations() {
  return std::getenv("LUMEN_COMBINATIONS") != nullptr;
}

// A level of scale, and formats that have it; by default the first one stands for all.
struct LevelOfScale {
  const char* name;
  std::vector<std::string> formats;
};
inline std::vector<LevelOfScale> levels_of_scale() {
  std::vector<LevelOfScale> levels = {
      {"beside the format", {"fp8_e4m3", "fp8_e5m2"}},
      {"tensor", {"int8", "fp8_tensor", "fp8_e5m2_tensor"}},
      {"row", {"int8_row", "fp8_row", "fp8_row_p2", "int4_row"}},
      {"1 x 128", {"fp8_1x128", "int8_1x128", "fp8_1x128_p2"}},
      {"128 x 128", {"fp8_tile", "fp8_128x128_p2"}},
      {"block", {"mxfp8_e4m3_up", "int8_block", "q8_0", "mxint8", "mxfp4_up"}},
      {"two levels", {"fp8_two_level", "nvfp4_divided"}},
      {"table", {"nf4", "mxfp4"}},
  };
  if (takes_all_combinations()) return levels;
  for (LevelOfScale& level : levels) level.formats.resize(1);
  return levels;
}

// What ends in an error, in its words; "": nothing does.
template <class Work>
std::string refusal_of(const Work& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Two machines by turns, or all.
class MachineKernels {
 public:
  explicit MachineKernels(size_t first = 0) : turn_(first) {}
  void synthesize(const graph::Graph& g, const run::CompileOptions& options, const std::string& what) {
    const std::vector<machine::MachineRef> machines = machine::all_machines();
    const size_t count = takes_all_combinations() ? machines.size() : 2;
    for (size_t i = 0; i < count; ++i) {
      const machine::Machine& m = *machines[turn_++ % machines.size()];
      try {
        of_machine(g, options, m);
      } catch (const std::exception& e) {
        ADD_FAILURE() << what << " on " << m.name << ": " << e.what();
      }
    }
  }
  size_t distinct() const { return known_.size(); }

 private:
  void of_machine(const graph::Graph& g, const run::CompileOptions& options, const machine::Machine& m) {
    const graph::Pipeline pipeline = run::run_pipeline(g, options, m);
    const run::ValueFacts facts = run::values_of(pipeline.plan.graph);
    for (const graph::Group& group : pipeline.plan.groups) {
      if (run::is_exchange(pipeline.plan.graph, group)) continue;
      const run::GroupForm form = run::form_of(pipeline.plan.graph, group, facts);
      if (!known_.insert(m.name + "\n" + form.meaning).second) continue;
      const auto kernels =
          run::synthesize_form(pipeline.plan, group, form, m, {options.exact, 0, options.products.scalar});
      if (kernels.steps.empty()) throw user_error("a group without a kernel");
    }
  }

  size_t turn_;
  std::set<std::string> known_;
};

// `want`: as `evaluated` gives them. Gradients that are rounded differ by a last bit here and there, and now and then
// by one code; such a code moves one row or column by little.
inline void expect_as_evaluated(const graph::Graph& g, const graph::Graph& evaluated,
                                const std::map<std::string, graph::Tensor>& inputs, run::CompileOptions options,
                                const std::string& what) {
  const auto want = graph::eval(evaluated, inputs);
  options.exact = true;
  run::Engine& e = engine();
  const auto program = run::run_once(e, g, inputs, options);
  ASSERT_EQ(want.size(), g.results.size()) << what;
  for (size_t r = 0; r < want.size(); ++r) {
    const auto got = run::floats_of(program->result(g.result_names[r]));
    ASSERT_EQ(got.size(), want[r].values.size()) << what;
    double size = 0, wrong = 0, far = 0;
    for (const double v : want[r].values) size = std::max(size, std::abs(v));
    EXPECT_TRUE(std::isfinite(size)) << what << " " << g.result_names[r];
    for (size_t i = 0; i < got.size(); ++i) {
      const double away = std::abs(got[i] - want[r].values[i]);
      far = std::max(far, away);
      wrong += away > 1e-5 * size + 1e-9 ? 1 : 0;
    }
    if (got.size() > 16) {
      EXPECT_LE(wrong, 0.06 * static_cast<double>(got.size())) << what << " " << g.result_names[r] << " " << size;
    }
    EXPECT_LE(far, 0.03 * size + 1e-6) << what << " " << g.result_names[r];
  }
}

}  // namespace lumen::model::train
