#include "run/engine/compile/judge.h"

#include <algorithm>

#include "base/error.h"
#include "kernel/machine/without_row.h"
#include "run/engine/compile/compile.h"
#include "run/engine/compile/groups.h"

namespace lumen::run {

using synth::Synthesis;

namespace {

// Replacements for a form's kernels, the most promising first.
class NextAlternatives {
 public:
  NextAlternatives(const CompileContext& context, const graph::Plan& plan, const graph::Group& group,
                   const GroupForm& form, const CompileOptions& options, const Synthesis& first)
      : plan_(plan), group_(group), form_(form), options_(options), machine_(context.device->machine()) {
    for (int candidate = 1; candidate < first.candidates; ++candidate) alternatives_.push_back({candidate, {}, false});
    const auto [used, all] = rows_to_avoid(first, machine_);
    if (!used.empty()) alternatives_.push_back({0, used, false});
    alternatives_.push_back({0, all, true});
  }
  // nullopt: there is no other.
  std::optional<Synthesized> next() {
    while (at_ < alternatives_.size()) {
      const Alternative& alternative = alternatives_[at_++];
      machine::Machine rest = machine_;
      for (const std::string& row : alternative.without) rest = machine::without_row(std::move(rest), row);
      try {
        Synthesized made =
            synthesize_form(plan_, group_, form_, rest,
                            {options_.exact || alternative.plain, alternative.candidate,
                             alternative.plain ? Scalar::f32 : options_.products.scalar, options_.invariant});
        made.candidates = 1;
        return made;
      } catch (const Error&) {
        continue;  // cannot be synthesized without these rows
      }
    }
    return std::nullopt;
  }

 private:
  struct Alternative {
    int candidate;
    std::set<std::string> without;  // rows of the machine's table
    bool plain;
  };
  const graph::Plan& plan_;
  const graph::Group& group_;
  const GroupForm& form_;
  const CompileOptions& options_;
  const machine::Machine& machine_;
  std::vector<Alternative> alternatives_;
  size_t at_ = 0;
};

}  // namespace

void add_rows_of(const loop::Region& region, std::set<std::string>* rows) {
  for (const loop::Instr& i : region.code) {
    if (!i.row.empty()) rows->insert(i.row);
    for (const loop::Region& inner : i.regions) add_rows_of(inner, rows);
  }
}

RowsToAvoid rows_to_avoid(const Synthesis& s, const machine::Machine& machine) {
  RowsToAvoid out;
  for (const synth::Step& step : s.steps) add_rows_of(step.kernel.body, &out.used);
  out.all = out.used;
  for (const machine::DotRow& row : machine.dots) out.all.insert({row.row, row.pairs});
  for (const machine::TileRow& row : machine.tiles) out.all.insert(row.row);
  for (const machine::MatrixRow& row : machine.matrices) out.all.insert(row.row);
  return out;
}

void replace_refused(const CompileContext& context, const graph::Plan& plan, const CompileOptions& options,
                     DistinctKernels* kernels) {
  for (size_t i = 0; i < kernels->distinct.size() && context.judge; ++i) {
    Synthesized& s = kernels->distinct[i];
    if (s.steps.empty()) continue;
    auto result = context.judge->known(kernels->forms[i], s, options);
    if (!result || result->right) continue;
    const std::string why = result->why;
    NextAlternatives alternatives(context, plan, plan.groups[kernels->first[i]], kernels->forms[i], options, s);
    while (result && !result->right) {
      std::optional<Synthesized> next = alternatives.next();
      if (!next)
        throw Error(Exit::verify, fmt::format("no kernel is right on {}: {}", context.device->describe(), why),
                    context.device->is_asynchronous()
                        ? "`lumen doctor` tests the device; --device cpu computes right"
                        : "`lumen doctor` tests the device; --machine takes another one's code");
      s = std::move(*next);
      result = context.judge->known(kernels->forms[i], s, options);
    }
    context.judge->replaced(fmt::format("{}: {} takes its place", why, s.steps.back().plan));
  }
}

bool are_trusted(const CompileContext& context, const graph::Plan& plan, const CompileOptions& options,
                 const Kernels& made) {
  bool all = true;
  const DistinctKernels& kernels = made.kernels;
  for (size_t i = 0; i < kernels.distinct.size(); ++i) {
    if (kernels.distinct[i].steps.empty() || context.judge->known(kernels.forms[i], kernels.distinct[i], options))
      continue;
    std::vector<void*> functions;
    for (const StepCode& code : made.code[i]) functions.push_back(code.alone);
    const KernelJudge::Result found = context.judge->try_out(
        {plan, plan.groups[kernels.first[i]], kernels.forms[i], kernels.distinct[i], functions, options});
    all = all && found.right;
  }
  for (const auto& [group, scan] : made.scans) {
    all = are_trusted(context, scan->plan.first_pipeline.plan, options, scan->first) && all;
    all = are_trusted(context, scan->plan.body_pipeline.plan, options, scan->body) && all;
  }
  return all;
}

}  // namespace lumen::run
