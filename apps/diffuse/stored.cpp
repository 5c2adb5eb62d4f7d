#include "apps/diffuse/stored.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/structured/json.h"
#include "model/file/checkpoint.h"

namespace lumen::diffuse {
namespace {

constexpr const char *kNetworkKey = "network", *kQuantizedKey = "quantized";
constexpr int64_t kMostParts = 4096, kMostExtent = int64_t{1} << 31;

std::string stored_text(const apps::NetworkSettings& settings, const QuantizedWeights& weights,
                        const std::string& method) {
  nlohmann::json products = nlohmann::json::array();
  for (const QuantizedWeight& w : weights) {
    nlohmann::json parts = nlohmann::json::array();
    for (const graph::QuantizedPart& p : w.product.parts)
      parts.push_back({{"row", p.row},
                       {"rows", p.rows},
                       {"column", p.column},
                       {"columns", p.columns},
                       {"divides", p.divides},
                       {"rank", p.rank}});
    products.push_back({{"weight", w.product.weight},
                        {"weights", w.product.weights->name},
                        {"activations", w.product.activations->name},
                        {"both_signs", w.product.is_dual},
                        {"places", w.product.places},
                        {"parts", parts}});
  }
  const nlohmann::json all = {{kNetworkKey, apps::network_settings_text(settings)},
                              {kQuantizedKey, {{"method", method}, {"products", products}}}};
  return json_print(all, "quantized settings", 2);
}

int64_t stored_extent(const nlohmann::json& object, const char* key, const std::string& where, int64_t least) {
  const int64_t n = json_integer(object, key, where);
  if (n < least || n > kMostExtent) throw user_error("{}: \"{}\" is {}", where, key, n);
  return n;
}

FormatRef stored_format(const nlohmann::json& object, const char* key, const std::string& where,
                        const FormatLibrary& formats) {
  const std::string name = json_text(object, key, where);
  const FormatRef f = formats.find(name);
  if (!f) throw user_error("{}: there is no format '{}'", where, name);
  return f;
}

graph::QuantizedProduct parse_product(const nlohmann::json& one, const std::string& where,
                                      const FormatLibrary& formats) {
  graph::QuantizedProduct out;
  out.weight = json_text(one, "weight", where);
  out.weights = stored_format(one, "weights", where, formats);
  out.activations = stored_format(one, "activations", where, formats);
  out.is_dual = json_boolean(one, "both_signs", false, where);
  // Older files have only matrices.
  if (one.contains("places")) out.places = stored_extent(one, "places", where, 1);
  const nlohmann::json& parts = json_member(one, "parts", where);
  if (!parts.is_array() || parts.empty() || std::ssize(parts) > kMostParts)
    throw user_error("{}: \"parts\" is no list of 1 to {}", where, kMostParts);
  for (const nlohmann::json& p : parts) {
    graph::QuantizedPart part{stored_extent(p, "row", where, 0),        stored_extent(p, "rows", where, 1),
                              stored_extent(p, "column", where, 0),     stored_extent(p, "columns", where, 1),
                              json_boolean(p, "divides", false, where), stored_extent(p, "rank", where, 0)};
    if (part.rank > std::min(part.rows, part.columns)) throw user_error("{}: \"rank\" is {}", where, part.rank);
    if (part.column % out.places != 0 || part.columns % out.places != 0)
      throw user_error("{}: {} columns at {} places", where, part.columns, out.places);
    out.parts.push_back(part);
  }
  return out;
}

// Numbers stored as scalars must be finite; every code of a format is valid.
void require_held(const model::file::StoredTensor& stored, const graph::Type& type, const std::string& where) {
  const graph::Type own{{stored.shape.begin(), stored.shape.end()}, stored.element};
  if (own != type) throw user_error("{}: '{}' is {}, not {}", where, stored.name, print(own), print(type));
}

QuantizedWeight read_weight(const graph::QuantizedProduct& product, const model::file::SafetensorsFile& file,
                            const std::string& where) {
  QuantizedWeight out;
  out.product = product;
  for (size_t k = 0; k < product.parts.size(); ++k)
    for (const auto& [what, type] : graph::part_inputs(product, k)) {
      const model::file::StoredTensor& stored = file.get(graph::part_input(product.weight, k, what));
      require_held(stored, type, where);
      out.inputs[stored.name] = {type, stored.blob()};
    }
  return out;
}

std::vector<float> stored_floats(const model::file::StoredTensor& stored, const std::string& where) {
  if (stored.element != graph::Element{}) throw user_error("{}: '{}' holds no f32 numbers", where, stored.name);
  std::vector<float> out(stored.blob_bytes() / sizeof(float));
  stored.copy_blob(reinterpret_cast<uint8_t*>(out.data()));
  for (const float v : out)
    if (!std::isfinite(v)) throw Error(Exit::numeric, fmt::format("{}: '{}' holds {}", where, stored.name, v));
  return out;
}

DrawingNetwork load_stored(run::Engine& engine, const model::arch::Library& library,
                           const model::file::Checkpoint& checkpoint, const nlohmann::json& all) {
  const std::string where = checkpoint.folder.string();
  apps::NetworkSettings settings = apps::parse_network_settings(json_text(all, kNetworkKey, where), where);
  settings.optimizer.ema_decay = 0;  // the stored weights are the average
  const nlohmann::json& quantized = json_member(all, kQuantizedKey, where);
  DrawingNetwork out{std::make_unique<apps::Network>(engine, library, settings), kQuantizedChange,
                     json_text(quantized, "method", where)};
  const nlohmann::json& products = json_member(quantized, "products", where);
  if (!products.is_array() || std::ssize(products) > kMostParts) throw user_error("{}: no list of products", where);
  QuantizedWeights weights;
  std::set<std::string> in_codes;
  for (const nlohmann::json& one : products) {
    weights.push_back(read_weight(parse_product(one, where, library.formats()), *checkpoint.weights, where));
    if (!in_codes.insert(weights.back().product.weight).second)
      throw user_error("{}: '{}' is there twice", where, weights.back().product.weight);
  }
  for (const model::arch::Parameter& p : out.network->parameters())
    if (!in_codes.contains(p.name)) out.network->write(p.name, stored_floats(checkpoint.weights->get(p.name), where));
  use_quantized(*out.network, weights, kQuantizedChange);
  return out;
}

}  // namespace

std::filesystem::path save_quantized(const std::filesystem::path& folder, const apps::Network& network,
                                     const QuantizedWeights& weights, const std::string& method) {
  std::set<std::string> in_codes;
  std::map<std::string, std::vector<uint8_t>> bytes;
  model::file::CheckpointContent content;
  content.state.step = network.steps();
  content.state.seed = network.settings().seed;
  content.state.config = stored_text(network.settings(), weights, method);
  const auto add = [&](const std::string& name, const graph::Type& type, std::vector<uint8_t> some) {
    model::file::TensorSpec spec{name, {}, type.element};
    for (const graph::Dim& d : type.shape) spec.shape.push_back(d.number());
    content.weights.push_back(spec);
    bytes[name] = std::move(some);
  };
  for (const QuantizedWeight& w : weights) {
    in_codes.insert(w.product.weight);
    for (const auto& [name, input] : w.inputs) add(name, input.type, input.bytes);
  }
  for (const model::arch::Parameter& p : network.parameters()) {
    if (in_codes.contains(p.name)) continue;
    const std::vector<float> numbers = network.read(p.name, true);
    const auto* const first = reinterpret_cast<const uint8_t*>(numbers.data());
    add(p.name, {p.shape, {}}, {first, first + numbers.size() * sizeof(float)});
  }
  content.fetch = [&](const model::file::TensorSpec& spec) { return std::span<const uint8_t>(bytes.at(spec.name)); };
  return model::file::save_checkpoint(folder, content, 1);
}

DrawingNetwork load_drawing(run::Engine& engine, const model::arch::Library& library,
                            const std::filesystem::path& folder) {
  const auto newest = model::file::latest_checkpoint(folder);
  if (!newest) throw user_error("{}: no checkpoint of a network", folder.string());
  const model::file::Checkpoint checkpoint = model::file::load_checkpoint(*newest, library.formats());
  const nlohmann::json all = parse_json(checkpoint.state.config, newest->string());
  if (all.is_object() && all.contains(kQuantizedKey)) return load_stored(engine, library, checkpoint, all);
  return {apps::Network::load(engine, library, folder), "", ""};
}

}  // namespace lumen::diffuse
