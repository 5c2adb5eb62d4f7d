#include "run/engine/verify/launch_trial/launch_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"
#include "base/round_up.h"
#include "graph/match/uses.h"
#include "number/codec/codec.h"
#include "run/device/require.h"
#include "run/engine/verify/launch_trial/example.h"
#include "run/engine/verify/launch_trial/operands.h"
#include "run/engine/verify/launch_trial/sampled.h"
#include "run/engine/verify/trial/trial.h"

namespace lumen::run {
namespace {

using graph::Type;
using graph::ValueId;

constexpr int64_t kMostPlaces = 1024;     // elements of one result
constexpr int64_t kFewestPlaces = 6;      // compared at any cost
constexpr int64_t kEnoughWork = 400'000;  // elements computed for that
constexpr double kMostMemory = 0.9;       // of the free memory
constexpr double kSmallest = 1e-30;       // devices flush small numbers to zero, and their reciprocals are inexact

// Device memory for values and scratch of one form.
class Buffers {
 public:
  Buffers(const CompileContext& context, const LoadedForm& form, const Operands& operands)
      : device_(context.device), form_(form) {
    const graph::Graph& g = form.plan.graph;
    int64_t end = 0;
    const auto take = [&](int64_t bytes) {
      const int64_t at = end;
      end = saturating_sum(end, round_up(bytes, kApart));
      return at;
    };
    for (const ValueId v : form.form.values) {
      const bool in_memory = has(form.group.inputs, v) || has(form.group.results, v);
      if (in_memory) values_.try_emplace(graph::storage_of(g, v), -1);
    }
    for (auto& [v, at] : values_) at = take(graph::byte_size(g[v].type));
    for (const int64_t bytes : form.synthesis.scratch) scratch_.push_back(take(bytes));
    const int64_t status_at = take(sizeof(LaunchStatus));
    if (double(end) > kMostMemory * double(device_->memory().free))
      throw CannotTry{fmt::format("its operands take {}, which are not free", size_text(end))};
    memory_ = std::static_pointer_cast<std::byte>(allocate_shared(device_, end));
    status_ = device_->is_asynchronous() ? reinterpret_cast<LaunchStatus*>(memory_.get() + status_at) : &own_status_;
    std::map<ValueId, ValueId> read;  // by storage: the result of an earlier group in that memory
    for (const ValueId v : form.group.inputs)
      if (!read.try_emplace(graph::storage_of(g, v), v).second) throw CannotTry{"two of its operands are one"};
    for (const auto& [v, at] : values_) {
      const int64_t bytes = graph::byte_size(g[v].type);
      if (const auto found = read.find(v); found != read.end())
        upload(*device_, operands[found->second], bytes, memory_.get() + at);
      else
        spoil(memory_.get() + at, bytes);
    }
  }

  // Launches all steps once, in order. Returns the code of a failed guard.
  int64_t launch() {
    const std::vector<bool> none(form_.synthesis.steps.size());
    for (size_t i = 0; i < none.size(); ++i) {
      const synth::Step& step = form_.synthesis.steps[i];
      std::vector<void*> buffers;
      for (const synth::Argument& a : step.arguments)
        buffers.push_back(a.from == synth::Argument::From::value
                              ? of(form_.form.values[a.index]) + form_.form.offsets[a.index]
                              : memory_.get() + scratch_.at(a.index));
      device_->launch(form_.functions[i], buffers, launch_config_of(step.kernel, device_->machine(), false), status_);
    }
    device_->synchronize();
    if (status_ != &own_status_) device_->copy_out(&own_status_, status_, sizeof own_status_);
    return own_status_.code;
  }

  std::byte* of(ValueId v) const { return memory_.get() + values_.at(graph::storage_of(form_.plan.graph, v)); }

  // Elements of a result, as numbers.
  std::vector<double> numbers(ValueId v, const std::vector<int64_t>& places) const {
    const Type& type = form_.plan.graph[v].type;
    std::vector<double> out;
    if (type.element.format) {
      std::vector<uint8_t> blob(graph::byte_size(type));
      device_->copy_out(blob.data(), of(v), std::ssize(blob));
      const int64_t columns = type.shape.back().number(), rows = graph::elements(type.shape).number() / columns;
      for (const int64_t i : places)
        out.push_back(decode_at(*type.element.format, blob, rows, columns, i / columns, i % columns));
      return out;
    }
    constexpr int64_t kMostAtOnce = 8 << 20;  // results up to this size in bytes are copied whole
    const int64_t width = scalar_bytes(type.element.scalar), all = graph::byte_size(type);
    std::vector<uint8_t> whole(all <= kMostAtOnce ? all : 0);
    if (!whole.empty()) device_->copy_out(whole.data(), of(v), all);
    for (const int64_t i : places) {
      uint64_t bits = 0;
      if (whole.empty())
        device_->copy_out(&bits, of(v) + i * width, width);
      else
        std::memcpy(&bits, &whole[i * width], width);
      out.push_back(number(type.element.scalar, bits));
    }
    return out;
  }

 private:
  static constexpr int64_t kApart = 256;  // bytes

  static bool has(const std::vector<ValueId>& list, ValueId v) {
    return std::find(list.begin(), list.end(), v) != list.end();
  }
  static double number(Scalar type, uint64_t bits) {
    if (type == Scalar::f32) return std::bit_cast<float>(uint32_t(bits));
    if (type == Scalar::f64) return std::bit_cast<double>(bits);
    if (type == Scalar::f16) return f16_to_f32(uint16_t(bits));
    if (type == Scalar::bf16) return bf16_to_f32(uint16_t(bits));
    return double(wrap_to_scalar(type, int64_t(bits)));
  }
  // Poisons memory to detect missing writes.
  void spoil(std::byte* to, int64_t bytes) {
    constexpr int64_t kAtOnce = 4 << 20;
    const std::vector<uint8_t> poison(std::min(bytes, kAtOnce), 0xff);
    for (int64_t at = 0; at < bytes; at += kAtOnce)
      device_->copy_in(to + at, poison.data(), std::min(kAtOnce, bytes - at));
  }

  std::shared_ptr<Device> device_;
  const LoadedForm& form_;
  std::map<ValueId, int64_t> values_;  // by storage: bytes into the memory
  std::vector<int64_t> scratch_;       // likewise by buffer
  std::shared_ptr<std::byte> memory_;
  LaunchStatus own_status_;
  LaunchStatus* status_ = nullptr;
};

// Elements read back from one result.
struct Read {
  ValueId value = -1;
  std::vector<int64_t> places;
  std::vector<double> got;
};

struct Worst {
  double excess = 0;
  int64_t compared = 0, unknown = 0;
  ValueId value = -1;
  int64_t place = 0;
  double got = 0;
  Bounded expected;
};

Worst compare(const LoadedForm& form, const Operands& operands, const KernelFreedom& freedom,
              const std::vector<Read>& all) {
  Sampled sampled(form.plan.graph, form.group, operands, freedom);
  Worst worst;
  for (const Read& read : all) {
    const int64_t before = sampled.work();
    for (size_t i = 0; i < read.places.size(); ++i) {
      if (int64_t(i) >= kFewestPlaces && sampled.work() - before > kEnoughWork) break;
      Bounded expected;
      try {
        expected = sampled.element(read.value, read.places[i]);
      } catch (const CannotTry&) {
        if (worst.compared == 0) throw;
        return worst;  // for the longest sums there is time for a few elements only
      }
      if (!expected.known()) {
        ++worst.unknown;
        continue;
      }
      ++worst.compared;
      const double excess = std::abs(read.got[i] - expected.value) / (expected.error + kSmallest);
      if (excess <= worst.excess) continue;
      const double as_number = std::isnan(excess) ? INFINITY : excess;
      if (worst.value >= 0 && as_number <= worst.excess) continue;
      worst.excess = as_number;
      worst.value = read.value, worst.place = read.places[i], worst.got = read.got[i], worst.expected = expected;
    }
  }
  return worst;
}

std::string text_of(const LoadedForm& form, const Worst& worst) {
  const graph::Node& n = form.plan.graph[worst.value];
  const Index i = index_of(n.type, worst.place);
  std::string place, plans;
  for (int d = 0; d < i.rank; ++d) place += fmt::format("{}{}", d > 0 ? ", " : "", i.at[d]);
  for (const synth::Step& step : form.synthesis.steps)
    plans += fmt::format("{}{}", plans.empty() ? "" : "; ", step.plan);
  return fmt::format("kernel '{}' computes wrongly: element [{}] of {}, expected {:g} within {:.2g}, got {:g}", plans,
                     place, graph::print(n.type), worst.expected.value, worst.expected.error, worst.got);
}

bool decodes(const LoadedForm& form) {
  return std::any_of(form.group.inputs.begin(), form.group.inputs.end(),
                     [&](ValueId v) { return form.plan.graph[v].type.element.format != nullptr; });
}

LaunchTrial tried(const CompileContext& context, const LoadedForm& form, bool positive, double* known) {
  const Operands operands(form.plan.graph, form.group, positive);
  KernelFreedom freedom;
  freedom.products = form.options.products.scalar;
  freedom.dynamic = !form.options.exact && (form.group.shape == graph::KernelShape::attend ||
                                            form.group.shape == graph::KernelShape::attend_gradient);
  std::set<std::string> rows;
  for (const synth::Step& step : form.synthesis.steps) add_rows_of(step.kernel.body, &rows);
  freedom.short_sums = has_short_sums(context.device->machine(), rows);
  std::vector<Read> reads;
  {
    Sampled sampled(form.plan.graph, form.group, operands, freedom);
    for (const ValueId v : form.group.results) reads.push_back({v, sampled.places(v, kMostPlaces), {}});
  }
  Buffers buffers(context, form, operands);
  if (const int64_t code = buffers.launch(); code != 0)
    throw CannotTry{fmt::format("it refuses these operands (guard {})", code)};
  for (Read& read : reads) read.got = buffers.numbers(read.value, read.places);
  std::vector<std::optional<Scalar>> ways{std::nullopt};
  if (decodes(form)) ways.insert(ways.end(), {Scalar::bf16, Scalar::f16});
  std::optional<Worst> best;
  for (const auto& way : ways) {
    freedom.decoded = way;
    const Worst worst = compare(form, operands, freedom, reads);
    if (!best || worst.excess < best->excess) best = worst;
    if (best->excess <= 1) break;
  }
  *known = double(best->compared) / double(std::max<int64_t>(1, best->compared + best->unknown));
  if (best->compared == 0) throw CannotTry{"nothing it gives is certain"};
  LaunchTrial out{true, best->excess <= 1, {}, best->compared};
  out.text = out.right ? fmt::format("{} elements, {:.2f} of what is allowed", best->compared, best->excess)
                       : text_of(form, *best);
  return out;
}

}  // namespace

LaunchTrial try_launch(const CompileContext& context, const LoadedForm& form) {
  if (form.example) return try_example(context, form);
  constexpr double kFew = 0.5;  // of the elements
  LaunchTrial out;
  for (const bool positive : {false, true}) {
    double known = 0;
    LaunchTrial next;
    try {
      next = tried(context, form, positive, &known);
    } catch (const CannotTry& reason) {
      next.text = reason.why;
    }
    if (next.tried || !out.tried) out = next;
    if (out.tried && (!out.right || known >= kFew)) break;
  }
  return out;
}

}  // namespace lumen::run
