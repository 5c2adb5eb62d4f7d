#include "model/compress/rotate/token_loss.h"

#include "base/error.h"
#include "model/arch/held_formats.h"
#include "model/compress/quantize.h"

namespace lumen::model::compress {

namespace {

// The model with quantized activations in its layers.
arch::Model with_activations(const arch::Model& model, const std::map<std::string, FormatRef>& formats,
                             const FormatRef& to) {
  arch::Model out = model;
  if (!to) return out;
  std::vector<graph::EncodedInput> inputs;
  for (const auto& [name, format] : formats) {
    const arch::Parameter& p = *model.find(name);
    if (graph::layer_of(name) < 0 || stays_f32(p)) continue;
    if (const auto why = graph::refuses_inputs(*to, p.shape.back().number(), {}))
      throw Error(Exit::user, fmt::format("the input of '{}' cannot be stored in {}: {}", p.gguf, to->name, *why),
                  "choose another format for activations");
    inputs.push_back({name, to, {}});
  }
  set_encoded_inputs(out, inputs);
  return out;
}

}  // namespace

TokenLoss::TokenLoss(run::Engine& engine, RotatedWeights& weights, const std::map<std::string, FormatRef>& formats,
                     std::span<const text::TokenId> text, const TokenLossOptions& options)
    : engine_(engine),
      weights_(weights),
      formats_(formats),
      rounds_(with_activations(weights.model(), formats, options.activations)),
      loss_(engine, rounds_, text, options.run, options.folder, options.own ? &weights.model() : nullptr),
      draw_(loss_.windows(), options.step_windows, options.seed) {}

void TokenLoss::round() {
  for (const auto& [name, format] : formats_) {
    std::vector<uint8_t>& blob = rounded_[name];
    if (!blob.empty() && !weights_.turns(name)) continue;
    const std::vector<float> values = weights_.values(name);
    const arch::Weight& w = weights_.model().weights.at(name);
    blob = engine_.encode(format, values.data(), w.rows(), w.columns());
  }
}

std::vector<float> TokenLoss::numbers(const std::string& name) {
  const auto format = formats_.find(name);
  if (format == formats_.end()) return weights_.values(name);
  const arch::Weight& w = weights_.model().weights.at(name);
  return engine_.decode(format->second, rounded_.at(name).data(), w.rows(), w.columns());
}

double TokenLoss::value() {
  round();
  return loss_.value([&](const std::string& name) { return numbers(name); });
}

double TokenLoss::add_gradients() {
  round();
  return loss_.gradients(
      draw_.next(), [&](const std::string& name) { return numbers(name); },
      [&](const std::string& name, const std::vector<float>& gradient) { weights_.pull(name, gradient); });
}

}  // namespace lumen::model::compress
