// Rounding with error feedback: a column's error is passed on to later columns, using the input's second moments (GPTQ,
// arXiv 2210.17323); optionally the targets are first moved to compensate the change of the input (GPTAQ, arXiv
// 2504.02692).

#include "run/engine/feedback/feedback.h"

#include <algorithm>
#include <map>

#include "model/compress/round/round.h"
#include "model/compress/strategy/each.h"
#include "model/compress/strategy/stack.h"

namespace lumen::model::compress {
namespace {

class FeedbackStrategyRounder : public Rounder {
 public:
  FeedbackStrategyRounder(run::Engine& engine, const StrategyOptions& options, bool answers)
      : engine_(engine), options_(options), answers_(answers), gptq_(engine) {}

  void begin_part() override { moments_.clear(); }

  Rounding round(const RoundingTask& t) override {
    const BlobStack stack(*t.format, t.matrices, t.rows, t.columns);
    Rounding out;
    if (t.matrices > 1) out.values.resize(t.values.size());
    if (t.matrices > 1 && stack.shares_fields()) {
      out.blob = engine_.encode(t.format, t.values.data(), t.all_rows(), t.columns);
    } else {
      if (t.matrices > 1) out.blob.resize(stack.bytes());
    }
    int64_t unreached = 0, nearest = 0;
    for (int64_t m = 0; m < t.matrices; ++m) {
      std::vector<uint8_t> under;  // the blob whose outer fields are kept
      if (t.matrices > 1 && stack.shares_fields()) under = stack.matrix(out.blob, m);
      GptqResult result = round_matrix(t, m, under, out.remark);
      unreached += t.reads && t.gram(m).empty();  // products do not read rows of an embedding
      nearest += result.is_nearest;
      if (t.matrices == 1) {
        out.blob = std::move(result.blob);
        out.values = std::move(result.values);
      } else {
        stack.put(out.blob, m, result.blob);
        std::ranges::copy(result.values, out.values.begin() + m * t.rows * t.columns);
      }
    }
    if (unreached > 0)
      add(out.remark, t.matrices == 1 ? "no row reached it: rounded to nearest"
                                      : fmt::format("no row reached {} of {} matrices", unreached, t.matrices));
    if (nearest > 0)
      add(out.remark, t.matrices == 1 ? "feedback gains nothing: rounded to nearest"
                                      : fmt::format("feedback gains nothing in {} matrices", nearest));
    return out;
  }

 private:
  static void add(std::string& remark, const std::string& more) { remark += (remark.empty() ? "" : "; ") + more; }

  GptqResult round_matrix(const RoundingTask& t, int64_t m, std::span<const uint8_t> under, std::string& remark) {
    if (t.gram(m).empty()) {
      GptqResult plain;
      plain.blob = under.empty() ? engine_.encode(t.format, t.matrix(m).data(), t.rows, t.columns)
                                 : std::vector<uint8_t>(under.begin(), under.end());
      plain.values = engine_.decode(t.format, plain.blob.data(), t.rows, t.columns);
      return plain;
    }
    Moments& moments = moments_of(t, m);
    if (remark.empty()) remark = moments.remark();
    GptqOptions how;
    how.weighs = true;
    how.under = under;
    if (answers_) how.difference = t.cross(m);
    return gptq_.round(t.format, t.matrix(m), t.rows, moments, how);
  }

  // Those of one matrix of a stack at a time; weights of a part with the same input share them.
  Moments& moments_of(const RoundingTask& t, int64_t m) {
    auto& slot = moments_[t.reads];
    if (!slot.second || slot.first != m) {
      MomentsOptions how;
      how.damping = options_.damping;
      how.act_order = options_.act_order;
      how.samples = t.rows_read(m);
      slot = {m, std::make_unique<Moments>(engine_, t.gram(m), t.columns, how)};
    }
    return *slot.second;
  }

  run::Engine& engine_;
  const StrategyOptions options_;
  const bool answers_;
  Gptq gptq_;
  std::map<const calibrate::TapSums*, std::pair<int64_t, std::unique_ptr<Moments>>> moments_;
};

class Feedback : public Strategy {
 public:
  explicit Feedback(bool answers) : answers_(answers) {}
  std::string_view name() const override { return answers_ ? "gptaq" : "gptq"; }
  std::string_view about() const override {
    return answers_ ? "gptq that also corrects the error of earlier layers"
                    : "error feedback by second moments of the inputs (--damp-percent, --desc-act)";
  }
  graph::TapKinds observes() const override {
    graph::TapKinds kinds;
    kinds.gram = true;
    kinds.cross = answers_;
    return kinds;
  }
  std::optional<std::string> refuses(const Format& f, const StrategyOptions& o) const override {
    if (!f.encodes()) return "it can only be read";
    if (o.act_order && !run::rounds_in_order(f))
      return "its codes cannot be chosen one by one, so that columns have no other order (--desc-act)";
    return std::nullopt;
  }
  std::unique_ptr<Rounder> rounder(run::Engine& engine, const StrategyOptions& options) const override {
    return std::make_unique<FeedbackStrategyRounder>(engine, options, answers_);
  }

 private:
  const bool answers_;
};

}  // namespace

const Strategy& feedback_strategy() {
  static const Feedback s(false);
  return s;
}
const Strategy& answering_strategy() {
  static const Feedback s(true);
  return s;
}

}  // namespace lumen::model::compress
