#include "made.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/hash.h"
#include "kernel/loop/text.h"
#include "kernel/synth/dot.h"
#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"

namespace lumen::golden {
namespace {

constexpr size_t kDigits = 8;

// The text of a kernel with other names in its first line; they stand nowhere else.
std::string nameless(const loop::Kernel& k) {
  loop::Kernel head;
  head.name = "k";
  head.params = k.params;
  head.aliased = k.aliased;
  for (size_t i = 0; i < head.params.size(); ++i) head.params[i].name = fmt::format("p{}", i);
  const std::string first = loop::print(head), text = loop::print(k);
  return first.substr(0, first.find('\n')) + text.substr(text.find('\n'));
}

std::string first_lines(const loop::Kernel& k, size_t whole, size_t beginning) {
  std::string text = loop::print(k);
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  if (lines <= whole) return text;
  size_t end = 0;
  for (size_t i = 0; i < beginning; ++i) end = text.find('\n', end) + 1;
  return text.substr(0, end) + fmt::format("# .. {} more lines; digest of all: {}\n", lines - beginning, digest(k));
}

struct Counts {
  int64_t loops = 0, loads = 0, stores = 0, copies = 0, private_bytes = 0, shared_bytes = 0;
  std::map<std::string, int64_t> rows;

  void add(const loop::Region& region) {
    for (const loop::Instr& i : region.code) {
      switch (i.op) {
        case loop::Op::loop_:
          ++loops;
          break;
        case loop::Op::load_:
        case loop::Op::gather_:
          ++loads;
          break;
        case loop::Op::store_:
        case loop::Op::scatter_:
          ++stores;
          break;
        case loop::Op::copy_:
        case loop::Op::copy_together_:
          ++copies;
          break;
        case loop::Op::alloc_:
          (i.space == loop::Space::shared ? shared_bytes : private_bytes) += i.bytes;
          break;
        default:
          if (!i.row.empty()) ++rows[i.row];
      }
      for (const loop::Region& inner : i.regions) add(inner);
    }
  }
};

synth::Options options_of(const Case& c) {
  return {c.options.exact, 0, c.options.products.scalar};
}

}  // namespace

std::vector<Made> make(const Case& c, const machine::Machine& m, bool with_others) {
  const graph::Pipeline pipeline = run::run_pipeline(c.graph, c.options, m);
  const synth::Options options = options_of(c);
  run::DistinctKernels kernels = run::synthesize_distinct(pipeline.plan, m, options);
  std::vector<Made> out;
  for (size_t i = 0; i < kernels.distinct.size(); ++i) {
    Made& made = out.emplace_back(Made{std::move(kernels.distinct[i]), {}});
    for (int candidate = 1; with_others && candidate < made.chosen.candidates; ++candidate)
      made.others.push_back(run::synthesize_form(pipeline.plan, pipeline.plan.groups[kernels.first[i]],
                                                 kernels.forms[i], m, {options.exact, candidate, options.products}));
  }
  return out;
}

std::string digest(const loop::Kernel& k) {
  return hash_text(nameless(k)).hex().substr(0, kDigits);
}

std::string digest(const std::vector<synth::Synthesis>& s) {
  std::string all;
  for (const synth::Synthesis& one : s)
    for (const synth::Step& step : one.steps) all += nameless(step.kernel);
  return hash_text(all).hex().substr(0, kDigits);
}

std::string summary_of(const loop::Kernel& k) {
  Counts counts;
  counts.add(k.body);
  std::string text = fmt::format("{} loops, {} loads, {} stores", counts.loops, counts.loads, counts.stores);
  if (counts.copies > 0) text += fmt::format(", {} copies", counts.copies);
  for (const auto& [row, count] : counts.rows) text += fmt::format(", {} {}", count, row);
  if (counts.private_bytes > 0) text += fmt::format(", {} bytes private", counts.private_bytes);
  if (counts.shared_bytes > 0) text += fmt::format(", {} bytes shared", counts.shared_bytes);
  return text;
}

std::vector<std::string> schedules(const Case& c, const machine::Machine& m) {
  const graph::Plan plan = run::run_pipeline(c.graph, c.options, m).plan;
  std::vector<std::string> out;
  for (const graph::Group& group : plan.groups)
    if (group.shape == graph::KernelShape::dot) out.push_back(synth::product_schedule(plan, group, m, options_of(c)));
  return out;
}

std::string line_of(const Made& made) {
  std::string line;
  for (const synth::Step& step : made.chosen.steps)
    line += fmt::format("{}{} {}", line.empty() ? "" : "; ", step.plan, digest(step.kernel));
  if (!made.others.empty()) line += fmt::format("; {} others {}", made.others.size(), digest(made.others));
  return line;
}

std::string text_of(const std::vector<Made>& made, const std::string& only, size_t whole, size_t beginning) {
  std::string text;
  const auto add = [&](const synth::Synthesis& s) {
    for (const synth::Step& step : s.steps) {
      if (step.plan.find(only) == std::string::npos) continue;
      text +=
          fmt::format("{}# {}\n{}", text.empty() ? "" : "\n", step.plan, first_lines(step.kernel, whole, beginning));
    }
  };
  for (const Made& m : made) {
    add(m.chosen);
    for (const synth::Synthesis& s : m.others) add(s);
  }
  return text;
}

}  // namespace lumen::golden
