#include "model/calibrate/text_loss.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/team.h"
#include "graph/ir/type.h"
#include "model/calibrate/calibrate.h"

namespace lumen::model::calibrate {
namespace {

constexpr int64_t kAtOnce = 8;  // windows per batch where logits are kept

LayerRunOptions with_function(LayerRunOptions options, const char* function) {
  options.function = function;
  return options;
}

// Log of the sum of exponentials.
double log_sum(std::span<const float> x) {
  const float most = *std::ranges::max_element(x);
  double sum = 0;
  for (const float v : x) sum += std::exp(double{v} - most);
  return most + std::log(sum);
}

std::vector<float> values_of_weight(run::Engine& engine, const arch::Weight& w) {
  if (w.is_f32()) return {w.f32().begin(), w.f32().end()};
  return engine.decode(w.type.element.format, w.bytes.data(), w.rows(), w.columns());
}

}  // namespace

TextLoss::TextLoss(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
                   const LayerRunOptions& options, const std::filesystem::path& folder, const arch::Model* teacher)
    : engine_(engine),
      length_(options.length),
      at_once_(std::max(options.batch, kAtOnce)),
      vocabulary_(model.integer("vocab")),
      teacher_(teacher),
      text_(text.begin(), text.end()),
      run_(engine, model, text, with_function(options, teacher ? "forward" : kTokenLoss)),
      values_(folder, "moving"),
      true_(folder, "taught"),
      slopes_(folder, "gradients"),
      windows_(run_.windows()) {
  if (!teacher) return;
  if (teacher->integer("vocab") != vocabulary_)
    throw user_error("the models predict {} and {} tokens: one cannot be the other's teacher", vocabulary_,
                     teacher->integer("vocab"));
  taught_.emplace(engine, *teacher, text, with_function(options, "forward"));
}

double TextLoss::tokens() const {
  return 1.0 * run_.windows() * (teacher_ ? length_ : length_ - 1);
}

void TextLoss::take(std::span<const int64_t> windows) {
  std::vector<text::TokenId> some;
  for (const int64_t w : windows)
    some.insert(some.end(), text_.begin() + w * length_, text_.begin() + (w + 1) * length_);
  run_.take(some);
  if (taught_) taught_->take(some);
}

std::vector<float> TextLoss::forward(LayerRun& run, CarriedValues& values, const Numbers& numbers) const {
  std::vector<float> out;
  for (size_t k = 0; k < run.parts(); ++k) {
    const bool last = k + 1 == run.parts();
    std::map<std::string, std::vector<float>> held;
    const PartRun part = run.run(
        k, [&](const std::string& name) -> std::span<const float> { return held[name] = numbers(name); }, &values,
        last ? nullptr : &values);
    if (!last) continue;
    LUMEN_CHECK(part.results.size() == 1, "a model of {} results", part.results.size());
    out = part.results.begin()->second;
  }
  return out;
}

double TextLoss::divergence(std::span<const float> logits, std::span<const float> teacher,
                            std::vector<float>* seeds) const {
  LUMEN_CHECK(logits.size() == teacher.size());
  const int64_t positions = std::ssize(logits) / vocabulary_;
  std::vector<double> by_position(positions, 0);
  if (seeds) seeds->resize(logits.size());
  parallel_for(0, positions, [&](int64_t p) {
    const std::span x = logits.subspan(p * vocabulary_, vocabulary_), y = teacher.subspan(p * vocabulary_, vocabulary_);
    const double of_x = log_sum(x), of_y = log_sum(y);
    for (int64_t v = 0; v < vocabulary_; ++v) {
      const double log_q = x[v] - of_x, log_p = y[v] - of_y, share = std::exp(log_p);
      if (share > 0) by_position[p] += share * (log_p - log_q);
      if (seeds) (*seeds)[p * vocabulary_ + v] = std::exp(log_q) - share;
    }
  });
  return std::accumulate(by_position.begin(), by_position.end(), 0.0);
}

double TextLoss::cost(const Numbers& numbers, std::vector<float>* seeds) {
  const std::vector<float> results = forward(run_, values_, numbers);
  if (taught_) {
    const std::vector<float> truth = forward(*taught_, true_, [&](const std::string& name) {
      return values_of_weight(engine_, teacher_->weights.at(name));
    });
    return divergence(results, truth, seeds);
  }
  double sum = 0;
  for (int64_t i = 0; i < std::ssize(results); ++i)
    if (i % length_ != length_ - 1) sum += results[i];
  return sum;
}

double TextLoss::value(const Numbers& numbers) {
  double sum = 0, count = 0;
  const int64_t at_once = teacher_ ? at_once_ : windows_;  // logits are wide, losses are not
  for (int64_t done = 0; done < windows_; done += at_once) {
    std::vector<int64_t> some(std::min(at_once, windows_ - done));
    std::iota(some.begin(), some.end(), done);
    take(some);
    sum += cost(numbers, nullptr);
    count += tokens();
  }
  return sum / count;
}

double TextLoss::gradients(std::span<const int64_t> windows, const Numbers& numbers, const Gradient& gradient) {
  take(windows);
  std::vector<float> seeds;
  const double sum = cost(numbers, &seeds), count = tokens();
  LayerRun::Seeds give;
  if (teacher_)
    give = [&](int64_t first, std::span<float> to) { std::copy_n(seeds.begin() + first, to.size(), to.begin()); };
  for (size_t k = run_.parts(); k-- > 0;) {
    std::map<std::string, std::vector<float>> held;
    PartRun part = run_.back(
        k, [&](const std::string& name) -> std::span<const float> { return held[name] = numbers(name); }, &values_,
        &slopes_, give);
    held.clear();
    for (auto& [name, by] : part.gradients) {
      for (float& g : by) g /= count;
      gradient(name, std::move(by));
    }
  }
  return sum / count;
}

}  // namespace lumen::model::calibrate
