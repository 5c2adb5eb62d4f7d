#include "model/compress/activations/kept_by_loss.h"

#include <algorithm>

#include "model/arch/held_formats.h"
#include "model/calibrate/text_loss.h"
#include "model/compress/quantize.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kWindows = 16;  // of the text that are evaluated

class Losses {
 public:
  Losses(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
         const calibrate::LayerRunOptions& options, std::span<const ActivationRange> ranges,
         const std::map<std::string, FormatRef>& weights, ActivationFormats formats)
      : engine_(engine),
        model_(model),
        text_(text.first(std::min<int64_t>(std::ssize(text), kWindows * options.length))),
        options_(options),
        ranges_(ranges),
        weights_(weights),
        formats_(std::move(formats)) {}

  double with(const std::set<std::string>& kept) {
    formats_.kept = kept;
    arch::Model rounded = model_;
    set_encoded_inputs(rounded, encodings_of(ranges_, formats_));
    calibrate::TextLoss loss(engine_, rounded, text_, options_, {}, &model_);
    return loss.value([&](const std::string& name) { return numbers(name, kept.contains(name)); });
  }

 private:
  std::vector<float> numbers(const std::string& name, bool kept) {
    const arch::Weight& w = model_.weights.at(name);
    const std::vector<float> values = values_of(engine_, w);
    const auto found = weights_.find(name);
    if (found == weights_.end()) return values;
    const FormatRef& to = kept ? formats_.kept_format : found->second;
    return engine_.decode(to, engine_.encode(to, values.data(), w.rows(), w.columns()).data(), w.rows(), w.columns());
  }

  run::Engine& engine_;
  const arch::Model& model_;
  const std::span<const text::TokenId> text_;
  const calibrate::LayerRunOptions options_;
  const std::span<const ActivationRange> ranges_;
  const std::map<std::string, FormatRef>& weights_;
  ActivationFormats formats_;
};

}  // namespace

KeptByLoss kept_by_loss(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
                        const calibrate::LayerRunOptions& options, std::span<const ActivationRange> ranges,
                        const std::map<std::string, FormatRef>& weights, const ActivationFormats& formats,
                        double gain) {
  Losses losses(engine, model, text, options, ranges, weights, formats);
  KeptByLoss out;
  out.before = out.after = losses.with({});
  for (const std::string& name : formats.kept) out.alone.emplace_back(name, losses.with({name}));
  std::ranges::stable_sort(out.alone, {}, &std::pair<std::string, double>::second);
  for (const auto& [name, alone] : out.alone) {
    std::set<std::string> more = out.kept;
    more.insert(name);
    const double loss = out.kept.empty() ? alone : losses.with(more);
    if (out.after - loss < gain) break;
    out.kept = std::move(more);
    out.after = loss;
  }
  return out;
}

}  // namespace lumen::model::compress
