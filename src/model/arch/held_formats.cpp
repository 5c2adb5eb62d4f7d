#include "model/arch/held_formats.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "model/file/sections.h"
#include "number/facts/limits.h"

namespace lumen::model::arch {
namespace {

constexpr double kMostEncodeInFile = 65536;  // operations per element

// A definition inside a file must encode at run time, so its cost is limited.
void require_cheap(const Model& model, const Format& f) {
  double work = f.code ? operations_of(*f.code) : 0;
  for (const std::optional<Routine>& fit : f.fit)
    if (fit) work += operations_of(*fit) / f.block;
  if (work > kMostEncodeInFile)
    throw user_error(
        "'{}': format '{}' takes {:.0f} operations to encode an element; a definition inside a file may "
        "take {:.0f}",
        model.name, f.name, work, kMostEncodeInFile);
}

class FormatsHere {
 public:
  explicit FormatsHere(const Model& model) : model_(model), formats_(model.family->library().formats(), model.name) {}

  FormatRef get(const std::string& name) {
    const FormatRef f = formats_.get(name, model_.metadata.text(kDefinition + name, ""));
    if (f != model_.family->library().formats().find(name)) require_cheap(model_, *f);
    return f;
  }

 private:
  const Model& model_;
  file::FormatsOfFile formats_;
};

void define(Model& model, const Format& f) {
  const std::string key = kDefinition + f.name;
  if (model.metadata.text(key, f.source_text) != f.source_text) throw file::two_definitions(f.name);
  model.metadata.set(key, f.source_text);
}

// Removes definitions that are no longer used.
void forget_definitions(Model& model) {
  std::set<std::string> named;
  for (const char* key : {kCacheKeys, kCacheValues})
    if (model.metadata.has(key)) named.insert(kDefinition + model.metadata.text(key));
  if (model.metadata.has(kActivationFormats))
    for (const std::string& name : model.metadata.texts(kActivationFormats)) named.insert(kDefinition + name);
  std::vector<std::string> old;
  for (const auto& [key, value] : model.metadata.entries())
    if (key.starts_with(kDefinition) && !named.contains(key)) old.push_back(key);
  for (const std::string& key : old) model.metadata.erase(key);
}

}  // namespace

namespace {

// Graph states of the cache, with the keys of their formats and scales.
struct CacheKeys {
  const char *ending, *format, *scales;
};
constexpr CacheKeys kCaches[] = {{"keys", kCacheKeys, kCacheKeyScales}, {"values", kCacheValues, kCacheValueScales}};

const char* scales_key(const char* key) {
  for (const CacheKeys& c : kCaches)
    if (std::string_view(c.format) == key) return c.scales;
  LUMEN_UNREACHABLE();
}

}  // namespace

std::vector<graph::EncodedInput> encoded_inputs(const Model& model) {
  std::vector<graph::EncodedInput> out;
  const file::GgufMetadata& metadata = model.metadata;
  const bool named = metadata.has(kActivationWeights);
  for (const char* key : {kActivationFormats, kActivationScales})
    if (metadata.has(key) != named) throw user_error("'{}': {} needs {}", model.name, key, kActivationWeights);
  if (!named) return out;
  const std::vector<std::string>&weights = metadata.texts(kActivationWeights),
        &formats = metadata.texts(kActivationFormats);
  const std::vector<double> scales = metadata.numbers(kActivationScales);
  if (weights.size() != formats.size() || weights.size() != scales.size())
    throw user_error("'{}': {} weights, {} formats and {} scales of activations", model.name, weights.size(),
                     formats.size(), scales.size());
  FormatsHere here(model);
  std::set<std::string> seen;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto p = std::ranges::find(model.parameters, weights[i], &Parameter::gguf);
    if (p == model.parameters.end() || p->is_vector())
      throw user_error("'{}': {} names '{}', which is not one of its weights", model.name, kActivationWeights,
                       weights[i]);
    if (!seen.insert(weights[i]).second)
      throw user_error("'{}': {} names '{}' twice", model.name, kActivationWeights, weights[i]);
    graph::EncodedInput input{p->name, here.get(formats[i]), {}};
    if (scales[i] != 0) input.scale = scales[i];
    if (const auto why = graph::refuses_inputs(*input.format, p->shape.back().number(), input.scale))
      throw user_error("'{}': the input of '{}' cannot be held in the format '{}': {}", model.name, weights[i],
                       formats[i], *why);
    out.push_back(std::move(input));
  }
  return out;
}

void set_encoded_inputs(Model& model, const std::vector<graph::EncodedInput>& inputs) {
  for (const char* key : {kActivationWeights, kActivationFormats, kActivationScales}) model.metadata.erase(key);
  forget_definitions(model);
  if (inputs.empty()) return;
  std::vector<std::string> weights, formats;
  std::vector<float> scales;
  for (const graph::EncodedInput& input : inputs) {
    const Parameter* const p = model.find(input.weight);
    if (!p || p->gguf.empty()) throw user_error("'{}' is not a weight with a name in files", input.weight);
    weights.push_back(p->gguf);
    formats.push_back(input.format->name);
    scales.push_back(input.scale.value_or(0));
    define(model, *input.format);
  }
  model.metadata.set(kActivationWeights, file::GgufArray(std::move(weights)));
  model.metadata.set(kActivationFormats, file::GgufArray(std::move(formats)));
  model.metadata.set(kActivationScales, file::GgufArray(std::move(scales)));
}

FormatRef held_cache(const Model& model, const char* key) {
  if (!model.metadata.has(key) || model.metadata.has(scales_key(key))) return nullptr;
  return FormatsHere(model).get(model.metadata.text(key));
}

void set_held_cache(Model& model, const char* key, const FormatRef& format) {
  model.metadata.erase(key);
  model.metadata.erase(scales_key(key));
  if (format) model.metadata.set(key, format->name);
  forget_definitions(model);
  if (format) define(model, *format);
}

std::vector<graph::EncodedState> encoded_states(const Model& model) {
  std::vector<graph::EncodedState> out;
  FormatsHere here(model);
  for (const CacheKeys& c : kCaches) {
    if (!model.metadata.has(c.scales)) continue;
    if (!model.metadata.has(c.format)) throw user_error("'{}': {} needs {}", model.name, c.scales, c.format);
    graph::EncodedState state{c.ending, here.get(model.metadata.text(c.format)), model.metadata.numbers(c.scales)};
    if (std::cmp_not_equal(state.scales.size(), model.integer("layers")))
      throw user_error("'{}': {} has {} numbers for {} layers", model.name, c.scales, state.scales.size(),
                       model.integer("layers"));
    for (const double scale : state.scales)
      if (const auto why = graph::refuses_inputs(*state.format, state.format->block, scale))
        throw user_error("'{}': {} cannot be held in the format '{}': {}", model.name, c.ending, state.format->name,
                         *why);
    out.push_back(std::move(state));
  }
  return out;
}

void set_encoded_state(Model& model, const char* key, const FormatRef& format, const std::vector<double>& scales) {
  set_held_cache(model, key, format);
  model.metadata.set(scales_key(key), file::GgufArray(std::vector<float>(scales.begin(), scales.end())));
}

void forget_held_formats(Model& model) {
  set_encoded_inputs(model, {});
  for (const CacheKeys& c : kCaches) set_held_cache(model, c.format, nullptr);
}

bool has_held_formats(const Model& model) {
  for (const char* key : {kActivationWeights, kActivationFormats, kActivationScales, kCacheKeys, kCacheValues,
                          kCacheKeyScales, kCacheValueScales})
    if (model.metadata.has(key)) return true;
  return false;
}

}  // namespace lumen::model::arch
