#include "model/arch/checkpoint/packed/held_tensors.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "graph/pass/pass.h"
#include "graph/transform/layers.h"
#include "graph/transform/low_rank.h"
#include "model/arch/held_formats.h"

namespace lumen::model::arch {
namespace {

// Weights whose columns a product reads can have a quantized input; lookup tables and weights that are only sliced
// cannot.
std::set<std::string> read_by_products(const Model& model) {
  std::set<std::string> out;
  graph::Graph g = model.family->function(model.family->has_function("step") ? "step" : "hidden", model.config);
  graph::inline_calls(g);
  graph::simplify(g);
  for (const auto& [name, places] : graph::low_rank_places(std::move(g)))
    if (places.products) out.insert(name);
  return out;
}

void take_inputs(Model& model, const PackedCheckpoint& packed, const file::TensorFile& file,
                 const std::function<std::vector<std::string>(const Parameter&)>& modules,
                 std::set<std::string>& used) {
  const FormatLibrary& formats = model.family->library().formats();
  std::vector<graph::EncodedInput> inputs;
  std::vector<std::string> widened, unread;
  std::set<std::string> products;
  for (const Parameter& p : model.parameters) {
    std::optional<HeldFormat> held;
    bool differs = false;
    for (const std::string& weight : modules(p)) {
      std::optional<HeldFormat> own = packed.input(file, weight, formats, used);
      if (!own) continue;
      if (held && held->format->hash != own->format->hash)
        throw user_error("'{}': the inputs of '{}' and of other parts of '{}' have different formats", model.name,
                         weight, p.gguf);
      differs = differs || (held && held->scale != own->scale);
      if (!held || (own->scale && *own->scale > *held->scale)) held = std::move(own);
    }
    if (!held) continue;
    if (products.empty()) products = read_by_products(model);
    if (!products.contains(p.name) || p.gguf.empty()) {
      unread.push_back(p.hf);
      continue;
    }
    if (differs) widened.push_back(p.gguf);
    inputs.push_back({p.name, held->format, held->scale});
  }
  set_encoded_inputs(model, inputs);
  (void)encoded_inputs(model);  // Error where a format cannot hold a weight's input
  if (!widened.empty())
    note(fmt::format("'{}': parts of {} have different input scales; all use the largest", model.name,
                     fmt::join(widened, ", ")));
  if (!unread.empty())
    warn(fmt::format("'{}': the inputs of {} stay floats: no single product reads them", model.name,
                     fmt::join(unread, ", ")));
}

void take_cache(Model& model, const PackedCheckpoint& packed, const file::TensorFile& file,
                std::set<std::string>& used) {
  const FormatLibrary& formats = model.family->library().formats();
  std::vector<double> keys, values;
  HeldFormat key, value;
  for (const std::string& prefix : attention_prefixes(model)) {
    key = packed.keys(file, prefix, formats, used);
    value = packed.values(file, prefix, formats, used);
    keys.push_back(key.scale.value_or(0));
    values.push_back(value.scale.value_or(0));
  }
  set_encoded_state(model, kCacheKeys, key.format, keys);
  set_encoded_state(model, kCacheValues, value.format, values);
  (void)encoded_states(model);
}

}  // namespace

std::vector<std::string> attention_prefixes(const Model& model) {
  std::vector<std::string> out(model.integer("layers"));
  for (const Parameter& p : model.parameters) {
    const int layer = graph::layer_of(p.name);
    if (p.role != "attention_k" || layer < 0 || layer >= std::ssize(out)) continue;
    std::string name = !p.hf_rows.empty() ? p.hf_rows : p.hf;
    for (int up = 0; up < 2; ++up) name = name.substr(0, name.rfind('.'));
    out[layer] = name + ".";
  }
  for (size_t layer = 0; layer < out.size(); ++layer)
    if (out[layer].empty())
      throw Error(Exit::user,
                  fmt::format("'{}': scales of keys and values are for layers with keys of their own, but layer {} has "
                              "none",
                              model.name, layer),
                  "remove kv_cache_scheme from quantization_config to compute with floats");
  return out;
}

void take_held(Model& model, const PackedCheckpoint& packed, const file::TensorFile& file,
               const std::function<std::vector<std::string>(const Parameter&)>& modules, std::set<std::string>& used) {
  take_inputs(model, packed, file, modules, used);
  if (packed.has_cache()) take_cache(model, packed, file, used);
}

}  // namespace lumen::model::arch
