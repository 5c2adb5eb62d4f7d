#include "model/arch/adapter/adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/adapter/adapter_stack.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/split_weights.h"
#include "model/file/gguf.h"
#include "model/file/safetensors.h"
#include "model/text/pattern/pattern.h"
#include "number/codec/codec.h"

namespace lumen::model {
namespace {

using nlohmann::ordered_json;

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// Numbers of any kind of floats, as f32.
std::vector<float> numbers(const FormatLibrary& formats, const StoredTensor& t, const std::string& file) {
  const FormatRef format = t.element.format ? t.element.format : format_of_scalar(formats, t.element.scalar);
  if (!format) throw user_error("{}: tensor '{}' is not of floats", file, t.name);
  std::vector<float> values;
  if (is_plain(*format, Scalar::f32)) {
    values.resize(t.rows() * t.columns());
    const std::vector<uint8_t> blob = t.blob();
    LUMEN_CHECK(blob.size() >= values.size() * sizeof(float));
    std::memcpy(values.data(), blob.data(), values.size() * sizeof(float));
  } else {
    std::vector<uint8_t> blob = t.blob();
    blob.resize(blob_layout(*format, t.rows(), t.columns()).total);
    values = decode(*format, blob, t.rows(), t.columns());
  }
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }))
    throw user_error("{}: tensor '{}' holds values that are not finite", file, t.name);
  return values;
}

// A matrix, or `count` stacked ones where that is not 0.
Weight matrix(const FormatLibrary& formats, const StoredTensor& t, const std::string& file, int64_t count = 0) {
  const size_t axes = count > 0 ? 3 : 2;
  if (t.shape.size() != axes || t.rows() < 1 || t.columns() < 1 || (count > 0 && t.shape[0] != count))
    throw user_error("{}: tensor '{}' has shape {}, but here an adapter has {}", file, t.name, shape_text(t.shape),
                     count > 0 ? fmt::format("{} stacked matrices", count) : "matrices");
  graph::Shape shape;
  for (const int64_t d : t.shape) shape.emplace_back(d);
  return f32_weight(shape, numbers(formats, t, file));
}

// The two matrices of one target, as the file names it.
struct Pair {
  const StoredTensor* a = nullptr;
  const StoredTensor* b = nullptr;
  const StoredTensor* magnitude = nullptr;
  bool looked_up = false;  // kept as changes of an embedding are
};
using Pairs = std::map<std::string, Pair>;

void check_pairs(const Pairs& pairs, const std::string& file) {
  if (pairs.empty()) throw user_error("{}: no tensors of an adapter", file);
  for (const auto& [target, pair] : pairs) {
    if (!pair.a || !pair.b)
      throw user_error("{}: '{}' has its {} matrix, but not its {}", file, target, pair.a ? "A" : "B",
                       pair.a ? "B" : "A");
  }
}

void put(Pairs& pairs, const std::string& target, bool is_a, const StoredTensor& t, bool looked_up,
         const std::string& file) {
  Pair& pair = pairs[target];
  const StoredTensor*& place = is_a ? pair.a : pair.b;
  if (place || ((pair.a || pair.b) && pair.looked_up != looked_up))
    throw user_error("{}: '{}' has two kinds of tensors for one matrix, '{}' among them", file, target, t.name);
  place = &t;
  pair.looked_up = looked_up;
}

void check_shape(const Weight& w, int64_t rows, int64_t columns, const StoredTensor& t, const std::string& file) {
  if (w.rows() == rows && w.columns() == columns) return;
  throw Error(Exit::user,
              fmt::format("{}: tensor '{}' has shape {}, but the model asks for {}", file, t.name, shape_text(t.shape),
                          shape_text({rows, columns})),
              "the adapter was made for another model");
}

void check_matrix(const Parameter& p, const std::string& target, const std::string& file) {
  if (p.shape.size() == 2) return;
  throw user_error("{}: '{}' is not one matrix of the model (parameter {}); such targets cannot be adapted", file,
                   target, p.name);
}

[[noreturn]] void unknown_target(const Model& model, const std::string& target, const std::string& file) {
  for (const Parameter& p : all_own_parameters(model)) {
    const bool named = target == p.gguf || target + ".weight" == p.hf;
    if (named && !p.absent_if.empty() && !model.find(p.name))
      throw Error(Exit::user,
                  fmt::format("{}: '{}' is adapted, but this model has no such weight: it uses its embedding there",
                              file, target),
                  "leave that target out when training the adapter");
  }
  throw Error(Exit::user, fmt::format("{}: the model '{}' has no weight '{}'", file, model.name, target),
              "the adapter was made for another model");
}

// ---- GGUF: names and row orders are ours.

Adapter read_gguf_adapter(const Model& model, const std::filesystem::path& path) {
  const FormatLibrary& formats = model.family->library().formats();
  const GgufFile file(path, formats);
  const std::string name = path.string();
  const GgufMetadata& m = file.metadata();
  if (m.text("general.type", "model") != "adapter")
    throw Error(Exit::user, fmt::format("{}: this file is a model, not an adapter", name), "give models with -m");
  if (const std::string kind = m.text("adapter.type", "lora"); kind != "lora")
    throw user_error("{}: adapters of the type '{}' are not known; only 'lora' is", name, kind);
  if (m.has("adapter.alora.invocation_tokens"))
    throw user_error("{}: adapters that begin to work at certain tokens are not supported", name);
  const std::string& made_for = m.text("general.architecture");
  if (made_for != model.family->gguf_architecture())
    throw user_error("{}: made for models of the architecture '{}', but '{}' has '{}'", name, made_for, model.name,
                     model.family->gguf_architecture());
  const double alpha = m.number("adapter.lora.alpha", 0);
  if (!std::isfinite(alpha)) throw user_error("{}: adapter.lora.alpha is not finite", name);

  Pairs pairs;
  for (const StoredTensor& t : file.tensors()) {
    const bool is_a = t.name.ends_with(".lora_a");
    if (!is_a && !t.name.ends_with(".lora_b"))
      throw user_error("{}: tensor '{}' is no part of a low-rank change", name, t.name);
    put(pairs, t.name.substr(0, t.name.size() - 7), is_a, t, false, name);
  }
  check_pairs(pairs, name);
  Adapter out;
  out.name = name;
  for (const auto& [target, pair] : pairs) {
    const auto p = std::find_if(model.parameters.begin(), model.parameters.end(),
                                [&](const Parameter& q) { return q.gguf == target; });
    if (p == model.parameters.end()) unknown_target(model, target, name);
    const bool stacked = p->shape.size() == 3 && !is_looked_up(*p);
    if (!stacked) check_matrix(*p, target, name);
    const int64_t count = stacked ? p->shape[0].number() : 0, matrices = std::max<int64_t>(count, 1);
    AdapterPart part;
    part.a = matrix(formats, *pair.a, name, count);
    part.b = matrix(formats, *pair.b, name, count);
    const int64_t rows = p->shape[p->shape.size() - 2].number(), columns = p->shape.back().number(), rank = part.rank();
    if (is_looked_up(*p)) {
      check_shape(part.a, rows, rank, *pair.a, name);
      check_shape(part.b, columns, rank, *pair.b, name);
    } else {
      check_shape(part.a, matrices * rank, columns, *pair.a, name);
      check_shape(part.b, matrices * rows, rank, *pair.b, name);
    }
    // Without alpha nothing is divided by the rank, as other programs have it.
    if (alpha != 0) part.scale = alpha / static_cast<double>(rank);
    out.parts.emplace(p->name, std::move(part));
  }
  return out;
}

// ---- Folders: names and row orders of Hugging Face models.

// What adapter_config.json says about sizes.
class FolderConfig {
 public:
  explicit FolderConfig(const std::filesystem::path& path) : file_(path.string()) {
    const std::string text = read_file(path, 4 << 20);
    parse_json(text, file_);  // its errors are the better ones
    json_ = ordered_json::parse(text);
    if (!json_.is_object()) throw user_error("{}: not a JSON object", file_);
    const auto kind = json_.find("peft_type");
    if (kind == json_.end() || !kind->is_string() || kind->get<std::string>() != "LORA")
      throw user_error("{}: peft_type must be \"LORA\"; other kinds of adapters are not supported", file_);
    for (const char* key :
         {"lora_bias", "use_qalora", "layer_replication", "trainable_token_indices", "alora_invocation_tokens",
          "target_parameters", "use_bdlora", "arrow_config", "kasa_config", "monteclora_config"}) {
      const auto value = json_.find(key);
      if (value == json_.end() || value->is_null() || *value == false || value->empty()) continue;
      throw Error(Exit::user, fmt::format("{}: \"{}\" is set, which cannot be applied beside a model", file_, key),
                  "merge the adapter into the model with the program that made it, and use the merged model");
    }
    if (const auto saved = json_.find("modules_to_save"); saved != json_.end() && saved->is_array())
      for (const ordered_json& name : *saved)
        if (name.is_string()) copies_.push_back(name.get<std::string>());
    if (const auto bias = json_.find("bias"); bias != json_.end() && !bias->is_null() && *bias != "none")
      throw user_error("{}: adapters with changed biases (\"bias\" is not \"none\") are not supported", file_);
    // Other beginnings change the model's own weights; the adapter alone does not say how.
    if (const auto init = json_.find("init_lora_weights"); init != json_.end() && init->is_string()) {
      const auto begin = init->get<std::string>();
      if (begin != "gaussian" && begin != "eva" && begin != "orthogonal")
        throw Error(Exit::user,
                    fmt::format("{}: init_lora_weights \"{}\" may have changed the base model", file_, begin),
                    "convert the adapter to a plain one when saving it (path_initial_model_for_weight_conversion)");
    }
    rank_ = number("r");
    alpha_ = number("lora_alpha");
    by_root_ = json_.value("use_rslora", ordered_json(false)) == ordered_json(true);
    has_magnitudes_ = json_.value("use_dora", ordered_json(false)) == ordered_json(true);
    read_patterns("rank_pattern", ranks_);
    read_patterns("alpha_pattern", alphas_);
  }

  // Whether a module was copied before it was trained: what else uses its weight keeps the model's.
  bool is_copy(const std::string& target) const {
    return std::any_of(copies_.begin(), copies_.end(), [&](const std::string& name) { return target.ends_with(name); });
  }
  bool by_root() const { return by_root_; }
  bool has_magnitudes() const { return has_magnitudes_; }
  double rank(const std::string& target) const { return of(ranks_, target, rank_); }
  double scale(const std::string& target) const {
    const double r = rank(target);
    return of(alphas_, target, alpha_) / (by_root_ ? std::sqrt(r) : r);
  }

 private:
  struct ByName {
    Pattern names;
    double value;
  };

  double positive(const ordered_json& value, const std::string& key) const {
    if (!value.is_number() || !std::isfinite(value.get<double>()) || !(value.get<double>() > 0))
      throw user_error("{}: \"{}\" must be a number above 0", file_, key);
    return value.get<double>();
  }
  double number(const char* key) const {
    const auto value = json_.find(key);
    if (value == json_.end()) throw user_error("{}: \"{}\" is missing", file_, key);
    return positive(*value, key);
  }
  void read_patterns(const char* key, std::vector<ByName>& out) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return;
    if (!found->is_object()) throw user_error("{}: \"{}\" must be an object", file_, key);
    for (const auto& [name, value] : found->items()) {
      // A whole name, or its last parts.
      out.push_back({Pattern("^(?:.*\\.)?(?:" + name + ")$", file_ + ": " + key), positive(value, key)});
    }
  }
  static double of(const std::vector<ByName>& patterns, const std::string& target, double otherwise) {
    for (const ByName& p : patterns) {
      Match match;
      uint64_t work = 0;
      if (p.names.find(target, 0, &match, &work) && match.begin == 0 && match.end == target.size()) return p.value;
    }
    return otherwise;
  }

  std::string file_;
  ordered_json json_;
  double rank_ = 0, alpha_ = 0;
  bool by_root_ = false, has_magnitudes_ = false;
  std::vector<ByName> ranks_, alphas_;
  std::vector<std::string> copies_;
};

constexpr std::string_view kBase = "base_model.model.";

// The target of a magnitude's name, "base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector".
std::optional<std::string> magnitude_name(std::string name) {
  if (name.starts_with(kBase)) name.erase(0, kBase.size());
  for (const std::string_view inside : {".default.weight", ".default", ".weight"})
    if (name.ends_with(inside)) {
      name.erase(name.size() - inside.size());
      break;
    }
  constexpr std::string_view kEnding = ".lora_magnitude_vector";
  if (!name.ends_with(kEnding)) return std::nullopt;
  return name.substr(0, name.size() - kEnding.size());
}

// "model.layers.0.mlp.up_proj" and which matrix, of "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight".
struct FolderName {
  std::string target;
  bool is_a = false, looked_up = false;
};
std::optional<FolderName> folder_name(std::string name) {
  if (name.starts_with(kBase)) name.erase(0, kBase.size());
  struct Ending {
    std::string_view text;
    bool is_a, looked_up;
  };
  constexpr Ending kEndings[] = {{".lora_A.weight", true, false},           {".lora_B.weight", false, false},
                                 {".lora_A.default.weight", true, false},   {".lora_B.default.weight", false, false},
                                 {".lora_embedding_A", true, true},         {".lora_embedding_B", false, true},
                                 {".lora_embedding_A.default", true, true}, {".lora_embedding_B.default", false, true}};
  for (const Ending& e : kEndings)
    if (name.ends_with(e.text)) return FolderName{name.substr(0, name.size() - e.text.size()), e.is_a, e.looked_up};
  return std::nullopt;
}

// A whole weight, by the name it has in the base model: "model.embed_tokens.weight" and whose weight it is, of
// "base_model.model.model.embed_tokens.base_layer.weight".
struct WholeName {
  std::string tensor, target;
};
std::optional<WholeName> whole_name(std::string name) {
  if (name.starts_with(kBase)) name.erase(0, kBase.size());
  constexpr std::string_view kWeight = ".weight";
  if (!name.ends_with(kWeight)) return std::nullopt;
  std::string target = name.substr(0, name.size() - kWeight.size());
  for (const std::string_view inside : {".base_layer", ".modules_to_save", ".modules_to_save.default"})
    if (target.ends_with(inside)) target.erase(target.size() - inside.size());
  return WholeName{target + std::string(kWeight), target};
}

// Part n of a matrix whose rows are those of several parameters.
Weight rows_of_part(const Weight& b, const Parameter& p) {
  const int64_t rows = p.shape[0].number();
  std::vector<int64_t> source;
  for (int64_t r = 0; r < rows; ++r) source.push_back(p.hf_part * rows + r);
  return take_rows(b, {graph::Dim(rows), graph::Dim(b.columns())}, source);
}

class FolderReader {
 public:
  FolderReader(const Model& model, const std::filesystem::path& folder)
      : model_(model),
        formats_(model.family->library().formats()),
        config_(folder / kAdapterConfig),
        file_(folder / kAdapterWeights, formats_),
        name_((folder / kAdapterWeights).string()) {}

  Adapter read() {
    Pairs pairs;
    std::vector<std::pair<const StoredTensor*, WholeName>> whole;
    std::vector<std::pair<const StoredTensor*, std::string>> magnitudes;
    for (const StoredTensor& t : file_.tensors()) {
      if (const auto n = folder_name(t.name)) {
        put(pairs, n->target, n->is_a, t, n->looked_up, name_);
      } else if (const auto m = magnitude_name(t.name)) {
        magnitudes.emplace_back(&t, *m);
      } else if (auto w = whole_name(t.name)) {
        whole.emplace_back(&t, std::move(*w));
      } else {
        throw Error(Exit::user,
                    fmt::format("{}: tensor '{}' is no part of a low-rank change, nor a weight", name_, t.name),
                    "biases cannot be applied beside a model; merge such an adapter with the program that made it");
      }
    }
    if (whole.empty() || !pairs.empty()) check_pairs(pairs, name_);
    put_magnitudes(magnitudes, pairs);
    Adapter out;
    out.name = name_;
    out.by_root = config_.by_root();
    for (const auto& [t, name] : whole) take_whole(*t, name, out);
    for (const auto& [target, pair] : pairs) {
      if (take_stacked(target, pair)) continue;
      for (const Place& place : places(target + ".weight", target)) {
        const Parameter& p = place.parameter;
        check_matrix(p, target, name_);
        if (!out.parts.emplace(p.name, part(p, target, pair, place.fused)).second)
          throw user_error("{}: parameter {} is adapted twice, the second time as '{}'", name_, p.name, target);
        if (place.shared) apart_.push_back(p);
      }
    }
    for (const auto& [name, matrices] : stacks_) {
      const Parameter& p = *model_.find(name);
      if (!out.parts.emplace(name, stack_matrices(p, matrices, name_)).second)
        throw user_error("{}: parameter {} is adapted twice", name_, name);
    }
    set_apart(out);
    return out;
  }

 private:
  // One of several stacked matrices, which have a module each in such folders.
  bool take_stacked(const std::string& target, const Pair& pair) {
    for (const Parameter& p : model_.parameters) {
      if (p.shape.size() != 3) continue;
      auto number = matrix_number(p.hf, target + ".weight");
      for (const std::string& also : p.hf_also)
        if (!number) number = matrix_number(also, target + ".weight");
      if (!number) continue;
      if (*number >= p.shape[0].number())
        throw Error(
            Exit::user,
            fmt::format("{}: '{}' is adapted, but the model has {} of them", name_, target, p.shape[0].number()),
            "the adapter was made for another model");
      Parameter one = p;
      one.shape.erase(one.shape.begin());
      if (!stacks_[p.name].emplace(*number, part(one, target, pair, false)).second)
        throw user_error("{}: parameter {} is adapted twice, the second time as '{}'", name_, p.name, target);
      return true;
    }
    return false;
  }

  // What a tensor of the base model is here.
  struct Place {
    Parameter parameter;
    bool fused = false;   // one of several parts of it
    bool shared = false;  // the model has another parameter for it
  };

  static std::optional<Place> place(const Parameter& p, const std::string& tensor) {
    const bool own = p.hf == tensor || std::find(p.hf_also.begin(), p.hf_also.end(), tensor) != p.hf_also.end();
    if (!own && p.hf_fused != tensor) return std::nullopt;
    return Place{p, !own};
  }

  std::vector<Place> places(const std::string& tensor, const std::string& target) const {
    std::vector<Place> out;
    for (const Parameter& p : model_.parameters)
      if (auto found = place(p, tensor)) out.push_back(std::move(*found));
    if (!out.empty()) return out;
    for (const Parameter& p : all_own_parameters(model_)) {
      auto found = place(p, tensor);
      if (!found || p.absent_if.empty() || !embedding_like(p)) continue;
      found->shared = true;
      out.push_back(std::move(*found));
    }
    if (out.empty()) unknown_target(model_, target, name_);
    return out;
  }

  // The embedding that a model without the parameter uses for it, or null.
  const Parameter* embedding_like(const Parameter& p) const {
    for (const Parameter& e : model_.parameters)
      if (e.role == "embedding" && e.shape == p.shape && e.hf_plus == p.hf_plus) return &e;
    return nullptr;
  }

  void take_whole(const StoredTensor& t, const WholeName& name, Adapter& out) {
    for (const Place& place : places(name.tensor, name.target)) {
      const bool copy = config_.is_copy(name.target);
      // Without a copy the weight stays one for all that use it.
      const Parameter& p = place.shared && !copy ? *embedding_like(place.parameter) : place.parameter;
      const Weight w = whole(t, p, place.fused);
      const auto [before, fresh] = given_.emplace(p.name, w);
      if (!fresh && !equal(before->second, w))
        throw user_error("{}: two different weights for parameter {}, the second is '{}'", name_, p.name, t.name);
      // What the model has already is no change.
      if (const auto own = model_.weights.find(p.name); own != model_.weights.end() && equal(own->second, w)) continue;
      if (copy) copies_.insert(p.name);
      out.whole.emplace(p.name, w);
    }
  }

  // Outputs that were the model's embedding until now, and can be no longer: they are adapted, or the embedding became
  // a copy, which they do not follow.
  void set_apart(Adapter& out) {
    for (const Parameter& p : all_own_parameters(model_)) {
      const bool shares = !p.absent_if.empty() && !model_.find(p.name) && embedding_like(p);
      if (shares && copies_.contains(embedding_like(p)->name)) apart_.push_back(p);
    }
    for (const Parameter& p : apart_) {
      const std::string& embedding = embedding_like(p)->name;
      const auto changed = out.whole.find(embedding);
      const bool follows = changed != out.whole.end() && !copies_.contains(embedding);
      out.whole.emplace(p.name, follows ? changed->second : model_.weights.at(embedding));
    }
  }

  static bool equal(const Weight& a, const Weight& b) {
    if (a.type.shape != b.type.shape) return false;
    const auto values = [](const Weight& w) {
      return w.is_f32() ? std::vector<float>(w.f32().begin(), w.f32().end())
                        : decode(*w.type.element.format, w.bytes, w.rows(), w.columns());
    };
    return values(a) == values(b);
  }

  Weight whole(const StoredTensor& t, const Parameter& p, bool fused) const {
    if (p.shape.size() > 2 || p.shape.empty() || (fused && (p.shape.size() != 2 || p.hf_transposed)))
      throw user_error("{}: '{}' is not one matrix of the model (parameter {})", name_, t.name, p.name);
    graph::Shape shape = p.shape;
    if (p.hf_transposed && shape.size() == 2) std::swap(shape[0], shape[1]);
    if (fused) shape[0] = graph::Dim(shape[0].number() * p.hf_parts);
    std::vector<int64_t> wanted;
    for (const graph::Dim& d : shape) wanted.push_back(d.number());
    if (t.shape != wanted)
      throw Error(Exit::user,
                  fmt::format("{}: tensor '{}' has shape {}, but the model asks for {}", name_, t.name,
                              shape_text(t.shape), shape_text(wanted)),
                  "the adapter was made for another model, or for one with more tokens");
    std::vector<float> values = numbers(formats_, t, name_);
    for (float& v : values) v = static_cast<float>(v + p.hf_plus);
    Weight w = f32_weight(shape, values);
    if (fused) w = rows_of_part(w, p);
    if (p.hf_transposed && shape.size() == 2) w = transposed(w);
    if (p.hf_halves > 0) halves_to_pairs(w, p.hf_halves, p.hf_turned);
    return w;
  }

  // Each pair has one, or none has.
  void put_magnitudes(const std::vector<std::pair<const StoredTensor*, std::string>>& magnitudes, Pairs& pairs) const {
    for (const auto& [t, target] : magnitudes) {
      if (!config_.has_magnitudes())
        throw user_error("{}: tensor '{}' is a magnitude, but {} does not say \"use_dora\"", name_, t->name,
                         kAdapterConfig);
      const auto pair = pairs.find(target);
      if (pair == pairs.end() || pair->second.magnitude)
        throw user_error("{}: tensor '{}' is a magnitude of {}", name_, t->name,
                         pair == pairs.end() ? "nothing that is adapted" : "what has one already");
      pair->second.magnitude = t;
    }
    if (!config_.has_magnitudes()) return;
    for (const auto& [target, pair] : pairs)
      if (!pair.magnitude)
        throw user_error("{}: {} says \"use_dora\", but '{}' has no magnitude", name_, kAdapterConfig, target);
  }

  // One number for each row of the target (column of an embedding), in our order.
  Weight magnitude(const StoredTensor& t, const Parameter& p, bool looked_up, bool fused) const {
    const int64_t own = p.shape[looked_up ? 1 : 0].number(), count = own * (fused ? p.hf_parts : 1);
    int64_t held = 1;
    for (const int64_t d : t.shape) held *= d;
    if (t.shape.empty() || t.shape.size() > 2 || held != count)
      throw Error(Exit::user,
                  fmt::format("{}: tensor '{}' has shape {}, but the model asks for {}", name_, t.name,
                              shape_text(t.shape), shape_text({count})),
                  "the adapter was made for another model");
    Weight w = f32_weight({graph::Dim(count), graph::Dim(1)}, numbers(formats_, t, name_));
    if (fused) w = rows_of_part(w, p);
    if (!looked_up && p.hf_halves > 0) halves_to_pairs(w, p.hf_halves, p.hf_turned);
    w.type.shape = {graph::Dim(own)};
    return w;
  }

  AdapterPart part(const Parameter& p, const std::string& target, const Pair& pair, bool fused) {
    if (pair.looked_up != is_looked_up(p))
      throw user_error("{}: '{}' is adapted as {}, but the model uses it otherwise", name_, target,
                       pair.looked_up ? "an embedding" : "a product");
    AdapterPart out;
    out.a = matrix(formats_, *pair.a, name_);
    out.b = matrix(formats_, *pair.b, name_);
    const int64_t rank = out.rank();
    if (static_cast<double>(rank) != config_.rank(target))
      throw user_error("{}: '{}' has rank {}, but {} says {}", name_, target, rank, kAdapterConfig,
                       config_.rank(target));
    const int64_t rows = p.shape[0].number(), columns = p.shape[1].number();
    if (pair.looked_up) {  // A is [rank, N], B [K, rank]
      check_shape(out.a, rank, rows, *pair.a, name_);
      check_shape(out.b, columns, rank, *pair.b, name_);
      out.a = transposed(out.a);
    } else {
      check_shape(out.a, rank, columns, *pair.a, name_);
      check_shape(out.b, rows * (fused ? p.hf_parts : 1), rank, *pair.b, name_);
      if (fused) out.b = rows_of_part(out.b, p);
      check_pairs(*model_.family, model_.config, p, model_.name);
      if (p.hf_halves > 0) halves_to_pairs(out.b, p.hf_halves, p.hf_turned);
    }
    if (pair.magnitude) out.magnitude = magnitude(*pair.magnitude, p, pair.looked_up, fused);
    out.scale = config_.scale(target);
    return out;
  }

  const Model& model_;
  const FormatLibrary& formats_;
  FolderConfig config_;
  SafetensorsFile file_;
  std::string name_;
  std::map<std::string, Weight> given_;                           // whole weights, by parameter
  std::set<std::string> copies_;                                  // parameters replaced by copies
  std::map<std::string, std::map<int64_t, AdapterPart>> stacks_;  // by parameter and number
  std::vector<Parameter> apart_;                                  // that the model has not, and will have
};

}  // namespace

Model with_whole_weights(const Model& model, std::span<const Adapter* const> adapters) {
  Model out = model;
  std::map<std::string, const Adapter*> whose;
  for (const Adapter* adapter : adapters) {
    for (const auto& [name, weight] : adapter->whole) {
      const auto [before, fresh] = whose.emplace(name, adapter);
      const Weight& known = fresh ? weight : before->second->whole.at(name);
      if (!(known.type == weight.type && known.bytes == weight.bytes))
        throw user_error("{} and {} have different weights for parameter {}", before->second->name, adapter->name,
                         name);
      out.weights.insert_or_assign(name, weight);
    }
  }
  for (const Parameter& p : all_own_parameters(model))
    if (!p.absent_if.empty() && out.weights.contains(p.name)) out.config[p.absent_if] = 0;
  out.parameters = own_parameters(out);
  for (const Parameter& p : out.parameters) LUMEN_CHECK(out.weights.contains(p.name), "{} has no weight", p.name);
  return out;
}

void require_scale(const ScaledAdapter& s) {
  if (s.scale == 1) return;
  const bool magnitudes = std::any_of(s.adapter.parts.begin(), s.adapter.parts.end(),
                                      [](const auto& part) { return part.second.magnitude.has_value(); });
  if (s.adapter.whole.empty() && !magnitudes) return;
  throw Error(Exit::user,
              fmt::format("{}: {} have no scale, but {} was asked for", s.adapter.name,
                          magnitudes ? "magnitudes" : "whole weights", s.scale),
              "use it with the scale 1");
}

bool is_looked_up(const Parameter& p) {
  return p.role == "embedding" || p.role == "position";
}

Adapter read_adapter(const Model& model, const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) throw user_error("{}: no such file", path.string());
  const bool is_folder = std::filesystem::is_directory(path, failure);
  const std::filesystem::path folder = is_folder ? path : path.parent_path();
  if (!is_folder && path.filename() != kAdapterWeights && path.filename() != kAdapterConfig)
    return read_gguf_adapter(model, path);
  if (!std::filesystem::exists(folder / kAdapterConfig, failure))
    throw Error(Exit::user, fmt::format("{}: no {} in this folder", folder.string(), kAdapterConfig),
                "an adapter is a GGUF file, or a folder with adapter_config.json and adapter_model.safetensors");
  if (!std::filesystem::exists(folder / kAdapterWeights, failure))
    throw Error(Exit::user, fmt::format("{}: no {} in this folder", folder.string(), kAdapterWeights),
                "pickles (adapter_model.bin) are not read; save the adapter as safetensors");
  return FolderReader(model, folder).read();
}

}  // namespace lumen::model
