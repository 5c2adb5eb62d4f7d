#include "model/compress/low_rank_correction/low_rank_correction.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "graph/transform/low_rank.h"
#include "model/arch/adapter/adapter_stack.h"
#include "model/arch/adapter/adapter_sum.h"
#include "model/arch/function.h"
#include "model/calibrate/sound.h"
#include "model/compress/quantize.h"
#include "model/compress/relative_error.h"

namespace lumen::model::compress {
namespace {

std::string name_of(const arch::Parameter& p) {
  return p.gguf.empty() ? p.name : p.gguf;
}

std::string element_name(const arch::Weight& w) {
  return w.is_f32() ? "f32" : w.type.element.format->name;
}

bool same_bytes(const arch::Weight& a, const arch::Weight& b) {
  return a.type == b.type && std::ranges::equal(a.bytes, b.bytes);
}

Error no_rounded_form(const arch::Model& original, const arch::Model& rounded, const std::string& why) {
  return {Exit::user, fmt::format("'{}' is no quantized form of '{}': {}", rounded.name, original.name, why),
          "where weights were changed before they were quantized, name the changed model as the original"};
}

void require_rounded_form(run::Engine& engine, const arch::Model& original, const arch::Model& rounded) {
  constexpr double kMost = 3e-3;  // of vectors, which are rounded to bf16 at most
  const auto differ = [&](const std::string& why) { return no_rounded_form(original, rounded, why); };
  if (original.family->name() != rounded.family->name())
    throw differ(fmt::format("their families are '{}' and '{}'", rounded.family->name(), original.family->name()));
  if (online_rotations(original) != online_rotations(rounded))
    throw differ("rotations that are computed while one runs are not those of the other");
  for (const arch::Parameter& p : rounded.parameters) {
    const arch::Parameter* own = original.find(p.name);
    if (!own) throw differ(fmt::format("'{}' is not in it", name_of(p)));
    if (own->shape != p.shape) throw differ(fmt::format("'{}' has another shape", name_of(p)));
    const arch::Weight &w = original.weights.at(p.name), &r = rounded.weights.at(p.name);
    if (!p.is_vector() || same_bytes(w, r)) continue;
    const double error = relative_error(values_of(engine, r), values_of(engine, w));
    if (!(error <= kMost)) throw differ(fmt::format("'{}' differs by {:.3g} of its size", name_of(p), error));
  }
  for (const arch::Parameter& p : original.parameters)
    if (!rounded.find(p.name)) throw differ(fmt::format("it has no '{}'", name_of(p)));
}

class Corrector {
 public:
  Corrector(run::Engine& engine, const arch::Model& original, const arch::Model& rounded,
            const LowRankCorrectionOptions& options,
            const std::function<void(const LowRankCorrectionProgress&)>& progress, const std::function<bool()>& stop)
      : engine_(engine), original_(original), rounded_(rounded), options_(options), progress_(progress), stop_(stop) {
    require_rounded_form(engine, original, rounded);
    out_.adapter.name = rounded.name;
    const auto places = graph::low_rank_places(function_of(rounded, "token_loss"));
    for (const arch::Parameter& p : rounded.parameters) {
      if (p.is_vector() || p.frozen) continue;
      if (same_bytes(original.weights.at(p.name), rounded.weights.at(p.name))) continue;
      const arch::Weight& r = rounded.weights.at(p.name);
      if (r.is_f32() || arch::is_plain(*r.type.element.format, Scalar::f16) ||
          arch::is_plain(*r.type.element.format, Scalar::bf16)) {
        leave(p, "floats: left as it is");
        continue;
      }
      const auto place = places.find(p.name);
      const bool multiplied = place != places.end() && place->second.products && !is_looked_up(p);
      if (multiplied)
        wanted_.push_back(p.name);
      else
        leave(p, "its rows are looked up: not corrected");
    }
    if (wanted_.empty())
      throw user_error("'{}' has no quantized matrix that products read; there is nothing to correct", rounded.name);
  }

  bool alone() {
    for (const std::string& name : wanted_) {
      if (stop_ && stop_()) return false;
      tell(name_of(*rounded_.find(name)));
      (void)correct_one(name, nullptr, numbers(name));
    }
    return true;
  }

  bool by_what_is_read(std::span<const text::TokenId> text) {
    calibrate::LayerRun run(engine_, rounded_, text, options_.run);
    calibrate::CarriedValues carried(options_.folder, "corrected");
    graph::TapKinds kinds;
    kinds.gram = true;
    for (size_t k = 0; k < run.parts(); ++k) {
      std::map<std::string, std::vector<float>> held;
      const auto weight = [&](const std::string& name) -> std::span<const float> {
        const auto [found, fresh] = held.try_emplace(name);
        if (fresh) found->second = numbers(name);
        return found->second;
      };
      std::vector<std::string> mine;
      for (const std::string& name : run.part(k).parameters)
        if (std::ranges::find(wanted_, name) != wanted_.end() && !out_.adapter.parts.contains(name))
          mine.push_back(name);
      const bool last = k + 1 == run.parts();
      const auto windows = [&](int64_t done) { tell(fmt::format("reads {}/{}", done, run.windows())); };
      calibrate::PartRun seen;
      if (!mine.empty()) seen = run.run(k, weight, &carried, nullptr, kinds, windows);
      (void)drop_unsound(seen.taps);  // those weights are corrected unweighted, which the report mentions
      for (const std::string& name : mine) {
        if (stop_ && stop_()) return false;
        tell(name_of(*rounded_.find(name)));
        const calibrate::TapSums* reads = reads_of(seen.taps, name);
        held[name] = correct_one(name, reads, std::vector<float>(weight(name).begin(), weight(name).end()));
      }
      if (!last) run.run(k, weight, &carried, &carried, {}, windows);
      run.drop_read(k, &carried);
    }
    return true;
  }

  LowRankCorrection result() {
    for (const arch::Parameter& p : rounded_.parameters)
      if (const auto found = lines_.find(p.name); found != lines_.end()) out_.tensors.push_back(found->second);
    return std::move(out_);
  }

 private:
  void tell(const std::string& doing) const {
    if (progress_) progress_({out_.adapter.parts.size(), wanted_.size(), doing});
  }

  void leave(const arch::Parameter& p, std::string why) {
    const arch::Weight &w = original_.weights.at(p.name), &r = rounded_.weights.at(p.name);
    CorrectedTensor& line = lines_[p.name];
    line = {name_of(p), element_name(r), 0, {}, {}, std::move(why)};
    line.before.weights = line.after.weights = relative_error(values_of(engine_, r), values_of(engine_, w));
  }

  // A weight's current numbers: rounded, and corrected if that is done.
  std::vector<float> numbers(const std::string& name) const {
    const arch::Weight& w = rounded_.weights.at(name);
    const auto part = out_.adapter.parts.find(name);
    if (part == out_.adapter.parts.end()) return values_of(engine_, w);
    arch::ScaledAdapter one;
    one.adapter.parts.emplace(name, part->second);
    return adapted_values(engine_, *rounded_.find(name), w, {&one, 1});
  }

  // The gram of matrix m; nullopt where it is not known, or no row reached it.
  static std::optional<arch::Weight> gram_of(const calibrate::TapSums* reads, int64_t m, int64_t columns) {
    const std::span<const float> gram = reads ? reads->gram_of(m) : std::span<const float>{};
    if (gram.empty()) return std::nullopt;
    return arch::f32_weight({graph::Dim(columns), graph::Dim(columns)}, gram);
  }

  // Returns the corrected numbers.
  std::vector<float> correct_one(const std::string& name, const calibrate::TapSums* reads, std::vector<float> now) {
    const arch::Parameter& p = *rounded_.find(name);
    const arch::Weight w = arch::f32_weight(p.shape, values_of(engine_, original_.weights.at(name)));
    const arch::Weight rounded = arch::f32_weight(p.shape, now);
    const bool stacked = p.shape.size() == 3;
    const int64_t matrices = stacked ? p.shape[0].number() : 1, size = p.count() / matrices;
    CorrectedTensor& line = lines_[name];
    line = {name_of(p), element_name(rounded_.weights.at(name)), 0, {}, {}, ""};
    std::map<int64_t, arch::AdapterPart> parts;
    int64_t unread = 0;
    FactorOptions how = options_.factors;
    how.seed = std::ranges::find(wanted_, name) - wanted_.begin();
    how.seed <<= 12;
    Means before, after;
    for (int64_t m = 0; m < matrices; ++m, ++how.seed) {
      const std::optional<arch::Weight> gram = gram_of(reads, m, w.columns());
      if (options_.weighted && !gram) ++unread;
      Factors f = factors_of(engine_, stacked ? matrix_of(w, m) : w, stacked ? matrix_of(rounded, m) : rounded,
                             gram ? &*gram : nullptr, how);
      std::ranges::copy(f.values, now.begin() + m * size);
      before.add(f.before);
      after.add(f.after);
      line.rank = std::max(line.rank, f.pair.left.columns());
      parts.emplace(m, arch::AdapterPart{std::move(f.pair.right), std::move(f.pair.left)});
    }
    line.before = before.figures();
    if (line.before.weights > 1)  // zeros would be nearer
      throw no_rounded_form(original_, rounded_,
                            fmt::format("'{}' differs by {:.3g} of its size", name_of(p), line.before.weights));
    line.after = after.figures();
    if (stacked && unread > 0)
      line.remark = fmt::format("the text reached {} of {} matrices; the others are corrected without inputs",
                                matrices - unread, matrices);
    else if (unread > 0)
      line.remark = "its inputs are unknown: corrected without them";
    out_.adapter.parts.emplace(name, stacked ? stack_matrices(p, parts, name) : std::move(parts.at(0)));
    return now;
  }

  // Stacked matrices are reported by their mean.
  struct Means {
    double weights = 0, outputs = 0;
    int64_t count = 0, seen = 0;
    void add(const ErrorFigures& e) {
      weights += e.weights;
      ++count;
      if (e.outputs < 0) return;
      outputs += e.outputs;
      ++seen;
    }
    ErrorFigures figures() const { return {weights / count, seen > 0 ? outputs / seen : -1}; }
  };

  run::Engine& engine_;
  const arch::Model &original_, &rounded_;
  const LowRankCorrectionOptions& options_;
  const std::function<void(const LowRankCorrectionProgress&)>& progress_;
  const std::function<bool()>& stop_;
  std::vector<std::string> wanted_;
  std::map<std::string, CorrectedTensor> lines_;
  LowRankCorrection out_;
};

}  // namespace

std::optional<LowRankCorrection> correct_low_rank(run::Engine& engine, const arch::Model& original,
                                                  const arch::Model& rounded, std::span<const text::TokenId> text,
                                                  const LowRankCorrectionOptions& options,
                                                  const std::function<void(const LowRankCorrectionProgress&)>& progress,
                                                  const std::function<bool()>& stop) {
  Corrector corrector(engine, original, rounded, options, progress, stop);
  const bool whole = options.weighted ? corrector.by_what_is_read(text) : corrector.alone();
  if (!whole) return std::nullopt;
  return corrector.result();
}

std::string LowRankCorrection::text() const {
  std::string out = fmt::format("{:<32} {:<14} {:>5} {:>10} -> {:>8} {:>12} -> {:>8}\n", "tensor", "format", "rank",
                                "rel. error", "", "of outputs", "");
  std::string remarks;
  const auto number = [](double x) { return x < 0 ? std::string("-") : fmt::format("{:.5f}", x); };
  for (const CorrectedTensor& t : tensors) {
    out += fmt::format("{:<32} {:<14} {:>5} {:>10} -> {:>8} {:>12} -> {:>8}\n", t.name, t.format, t.rank,
                       number(t.before.weights), number(t.after.weights), number(t.before.outputs),
                       number(t.after.outputs));
    if (!t.remark.empty()) remarks += fmt::format("  {}: {}\n", t.name, t.remark);
  }
  return out + (remarks.empty() ? "" : "remarks:\n" + remarks);
}

}  // namespace lumen::model::compress
