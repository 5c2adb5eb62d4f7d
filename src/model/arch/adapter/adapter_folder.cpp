// Folders: names and row orders of Hugging Face models.
#include <algorithm>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "model/arch/adapter/adapter_config.h"
#include "model/arch/adapter/adapter_keys.h"
#include "model/arch/adapter/adapter_stack.h"
#include "model/arch/adapter/adapter_tensors.h"
#include "model/arch/adapter/adapter_whole.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/split_weights.h"
#include "model/file/safetensors.h"
#include "number/codec/codec.h"

namespace lumen::model::arch {
namespace {

constexpr std::string_view kBase = "base_model.model.", kWeight = ".weight", kBias = ".bias", kDefault = ".default";

// The target in a magnitude's name, "base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector".
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

// The target "model.layers.0.mlp.up_proj", and whether it is A or B, of
// "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight".
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

// A full weight, by its name in the base model: "model.embed_tokens.weight" and its module, of
// "base_model.model.model.embed_tokens.base_layer.weight".
struct WholeName {
  std::string tensor, target;
  bool unused = false;  // the original of a copy
};
std::optional<WholeName> whole_name(std::string name) {
  if (name.starts_with(kBase)) name.erase(0, kBase.size());
  for (const std::string_view end : {kWeight, kBias}) {
    if (!name.ends_with(end)) continue;
    WholeName out;
    out.target = name.substr(0, name.size() - end.size());
    const auto without = [&](std::string_view inside) {
      const bool found = out.target.ends_with(inside);
      if (found) out.target.erase(out.target.size() - inside.size());
      return found;
    };
    out.unused = without(".original_module");
    for (const std::string_view inside :
         {".base_layer", ".token_adapter", ".modules_to_save.default", ".modules_to_save"})
      (void)without(inside);
    out.tensor = out.target + std::string(end);
    return out;
  }
  return std::nullopt;
}

// The module in "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta".
std::optional<std::string> tokens_name(std::string name) {
  if (name.starts_with(kBase)) name.erase(0, kBase.size());
  if (name.ends_with(kDefault)) name.erase(name.size() - kDefault.size());
  for (const std::string_view end : {".token_adapter.trainable_tokens_delta", ".trainable_tokens_delta"})
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  return std::nullopt;
}

// The target in the name of B's bias.
std::optional<std::string> low_rank_bias_name(std::string name) {
  if (name.starts_with(kBase)) name.erase(0, kBase.size());
  for (const std::string_view end : {".lora_B.bias", ".lora_B.default.bias"})
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  return std::nullopt;
}

// The rows of `p` in a fused matrix of several parameters.
Weight rows_of_part(const Weight& b, const Parameter& p) {
  const int64_t rows = p.shape[0].number();
  std::vector<int64_t> source;
  for (int64_t r = 0; r < rows; ++r) source.push_back(p.hf_part * rows + r);
  return take_rows(b, {graph::Dim(rows), graph::Dim(b.columns())}, source);
}

// Returns "model.layers.0.mlp.experts", 1 for "model.layers.0.mlp.experts.base_layer".
std::pair<std::string, int> without_layers(std::string target) {
  constexpr std::string_view kLayer = ".base_layer";
  int depth = 0;
  for (; target.ends_with(kLayer); ++depth) target.erase(target.size() - kLayer.size());
  return {target, depth};
}

class FolderReader {
 public:
  FolderReader(const Model& model, const std::filesystem::path& folder)
      : given_(model),
        formats_(model.family->library().formats()),
        config_(folder / kAdapterConfig),
        file_(folder / kAdapterWeights, formats_),
        name_((folder / kAdapterWeights).string()) {}

  Adapter read() {
    sort_tensors();
    check_targets();
    resize();
    out_.name = name_;
    out_.by_root = config_.by_root();
    for (const auto& [t, name] : whole_) take_whole(*t, name);
    for (const auto& [module, t] : token_rows_) take_tokens(*t, module);
    for (const auto& [target, pair] : pairs_) {
      if (pair.bias) add_bias(*pair.bias, target);
      if (take_stacked(target, pair) || set_aside(target, pair)) continue;
      for (const Place& place : places(target + std::string(kWeight), target)) take_part(place, target, pair);
    }
    for (const auto& [module, depths] : nested_) take_parameters(module, depths);
    for (const auto& [name, matrices] : stacks_)
      put_part(*model().find(name), stack_matrices(*model().find(name), matrices, name_), name);
    check_copies();
    set_apart();
    check_sizes();
    return std::move(out_);
  }

 private:
  // The model as the adapter changes it: other vocabulary size, biases that the given model lacks.
  const Model& model() const { return changed_ ? *changed_ : given_; }

  void sort_tensors() {
    std::vector<std::pair<const file::StoredTensor*, std::string>> magnitudes, biases;
    for (const file::StoredTensor& t : file_.tensors()) {
      if (const auto n = folder_name(t.name)) {
        put_in_pair(pairs_, n->target, n->is_a, t, n->looked_up, name_);
      } else if (const auto m = magnitude_name(t.name)) {
        magnitudes.emplace_back(&t, *m);
      } else if (const auto b = low_rank_bias_name(t.name)) {
        biases.emplace_back(&t, *b);
      } else if (const auto module = tokens_name(t.name)) {
        if (!token_rows_.emplace(*module, &t).second)
          throw user_error("{}: '{}' has two tensors of token rows, one is '{}'", name_, *module, t.name);
      } else if (auto w = whole_name(t.name)) {
        if (!w->unused) whole_.emplace_back(&t, std::move(*w));
      } else {
        throw user_error("{}: tensor '{}' is not part of a low-rank update, nor a weight or a bias", name_, t.name);
      }
    }
    if (pairs_.empty() && whole_.empty() && token_rows_.empty())
      throw user_error("{}: no tensors of an adapter", name_);
    require_pairs(pairs_, name_);
    put_magnitudes(magnitudes);
    put_biases(biases);
    if (token_rows_.empty() && !config_.tokens().empty())
      throw user_error("{}: {} names trained tokens, but their rows are missing", name_, kAdapterConfig);
    if (!token_rows_.empty() && config_.tokens().empty())
      throw user_error("{}: there are rows of trained tokens, but {} does not name the tokens", name_, kAdapterConfig);
  }

  // Other programs ignore tensors of modules that the config does not name.
  void check_targets() const {
    std::set<std::string> found;
    for (const auto& [target, pair] : pairs_) {
      const auto [module, depth] = without_layers(target);
      found.insert(module);
      if (depth > 0 || config_.targets(module) != false || !parameters_of(module).empty() || is_tied(module)) continue;
      throw Error(
          Exit::user,
          fmt::format("{}: tensor '{}' changes '{}', which {} does not name", name_, pair.a->name, module,
                      kAdapterConfig),
          "target_modules, exclude_modules, layers_to_transform and modules_to_save select the modules that are "
          "changed; other programs ignore such a tensor");
    }
    if (pairs_.empty()) return;
    std::vector<std::string> idle;
    for (const std::string& name : config_.target_names()) {
      const auto means = [&](const std::string& module) { return module == name || module.ends_with("." + name); };
      if (std::ranges::none_of(found, means)) idle.push_back(name);
    }
    if (!idle.empty())
      warn(fmt::format("{}: \"target_modules\" names {}, but the file has no tensors of that name", config_.file(),
                       printable(fmt::format("{}", fmt::join(idle, ", ")))));
  }

  bool is_tied(const std::string& module) const {
    return std::ranges::any_of(adapter_keys().tied, [&](const std::string& name) {
      return config_.ties() && (module == name || module.ends_with("." + name));
    });
  }

  // An adapter of a model with a resized vocabulary contains its embedding.
  void resize() {
    for (const auto& [t, name] : whole_) {
      for (const Parameter& p : all_own_parameters(given_)) {
        if (!place(p, name.tensor) || p.shape.size() != 2 || t->shape.size() != 2 || t->shape[1] != p.shape[1].number())
          continue;
        const int64_t tokens = t->shape[0];
        if ((p.role != "embedding" && p.role != "output") || tokens == p.shape[0].number() || tokens < 1) continue;
        if (given_.tokenizer && given_.tokenizer->size() > tokens)
          throw Error(Exit::user,
                      fmt::format("{}: tensor '{}' has {} tokens, but the tokenizer of '{}' has {}", name_, t->name,
                                  tokens, given_.name, given_.tokenizer->size()),
                      "the adapter was made for another model");
        if (given_.tokenizer && given_.tokenizer->size() < tokens)
          warn(fmt::format(
              "{}: the vocabulary becomes {} tokens, of which the tokenizer of '{}' has {}: it cannot encode "
              "or decode the others",
              name_, tokens, given_.name, given_.tokenizer->size()));
        out_.config[kVocabulary] = tokens;
        changed_ = with_config(given_, out_.config);
        return;
      }
    }
  }

  // The base-model names of those weights of a module that target_parameters names, in the order of the family's
  // source, which is that of PEFT's wrapping.
  std::vector<std::string> parameters_of(const std::string& module) const {
    std::vector<std::string> out;
    const auto take = [&](const std::string& tensor) {
      if (!tensor.starts_with(module + ".") || tensor.find('.', module.size() + 1) != std::string::npos) return;
      if (config_.targets_parameter(tensor) && std::ranges::find(out, tensor) == out.end()) out.push_back(tensor);
    };
    for (const Parameter& p : model().parameters) {
      take(p.hf);
      for (const std::string& also : p.hf_also) take(also);
      take(p.hf_fused);
      take(p.hf_rows);
    }
    return out;
  }

  // Updates of target_parameters: nested wrappers where a module has several.
  bool set_aside(const std::string& target, const Pair& pair) {
    const auto [module, depth] = without_layers(target);
    if (depth == 0 && parameters_of(module).empty()) return false;
    nested_[module].emplace(depth, &pair);
    return true;
  }

  void take_parameters(const std::string& module, const std::map<int, const Pair*>& depths) {
    const std::vector<std::string> tensors = parameters_of(module);
    if (tensors.size() != depths.size() || depths.rbegin()->first + 1 != std::ssize(tensors))
      throw Error(
          Exit::user,
          fmt::format("{}: {} parameters of '{}' are changed, but \"target_parameters\" of {} matches {} of the "
                      "model",
                      name_, depths.size(), module, kAdapterConfig, tensors.size()),
          "the adapter was made for another model");
    for (const auto& [depth, pair] : depths) {
      const std::string& tensor = tensors[tensors.size() - 1 - depth];
      bool found = false;
      for (const Parameter& p : std::vector<Parameter>(model().parameters)) {
        const auto own = place(p, tensor);
        if (!own && p.hf_rows != tensor) continue;
        found = true;
        if (p.shape.size() == 3)
          put_part(p, stacked_part(p, tensor, *pair), tensor);
        else
          take_part(own ? *own : throw unmade(p, tensor), tensor, *pair);
      }
      if (!found) refuse_target(model(), tensor, name_);
    }
  }

  Error unmade(const Parameter& p, const std::string& target) const {
    return user_error("{}: '{}' is not one matrix of the model (parameter {}); such targets cannot be adapted", name_,
                      target, p.name);
  }

  // A pair of matrices that updates all matrices of a stack.
  AdapterPart stacked_part(const Parameter& p, const std::string& tensor, const Pair& pair) const {
    const bool fused = p.hf_fused == tensor, between = p.hf_rows == tensor;
    if ((between && !(p.hf_columns && p.hf_transposed)) || is_reordered(p) || pair.magnitude || pair.bias ||
        pair.looked_up)
      throw unmade(p, tensor);
    const int64_t matrices = p.shape[0].number(), own = p.shape[1].number(), columns = p.shape[2].number();
    const int64_t rows = fused ? own * p.hf_parts : between ? own / p.hf_count * p.hf_of : own;
    std::vector<int64_t> source;
    for (int64_t r = 0; r < own; ++r)
      source.push_back(fused ? p.hf_part * own + r : between ? p.row_of_whole(r, own) : r);
    const Weight a = matrix_in(formats_, *pair.a, name_), b = matrix_in(formats_, *pair.b, name_);
    const int64_t all = a.rows();
    if (all % matrices != 0)
      throw Error(Exit::user,
                  fmt::format("{}: tensor '{}' has shape {}, whose rows are not a multiple of {} matrices", name_,
                              pair.a->name, shape_text(pair.a->shape), matrices),
                  "the adapter was made for another model");
    if (all / matrices != config_.rank(tensor))
      throw user_error("{}: '{}' has rank {}, but {} has {}", name_, tensor, all / matrices, kAdapterConfig,
                       config_.rank(tensor));
    const bool fits = a.columns() == columns && b.rows() == rows, turned = a.columns() == rows && b.rows() == columns;
    const bool turns = turned && (!fits || (config_.is_turned_in_stacks() && !p.hf_transposed));
    require_shape(a, all, turns ? rows : columns, *pair.a, name_);
    require_shape(b, turns ? columns : rows, all, *pair.b, name_);
    AdapterPart out = split_stack(p, a, b, source, turns);
    out.scale = config_.scale(tensor);
    return out;
  }

  // One matrix of a stack; such folders have a module for each.
  bool take_stacked(const std::string& target, const Pair& pair) {
    for (const Parameter& p : model().parameters) {
      if (p.shape.size() != 3) continue;
      auto number = matrix_number(p.hf, target + std::string(kWeight));
      for (const std::string& also : p.hf_also)
        if (!number) number = matrix_number(also, target + std::string(kWeight));
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

  // The parameter that a tensor of the base model corresponds to.
  struct Place {
    Parameter parameter;
    bool fused = false;   // one part of a fused tensor
    bool shared = false;  // the model uses another parameter for it (tied)
  };

  static std::optional<Place> place(const Parameter& p, const std::string& tensor) {
    const bool own = p.hf == tensor || std::find(p.hf_also.begin(), p.hf_also.end(), tensor) != p.hf_also.end();
    if (!own && p.hf_fused != tensor) return std::nullopt;
    return Place{p, !own};
  }

  std::vector<Place> places(const std::string& tensor, const std::string& target) {
    std::vector<Place> out;
    const auto look = [&] {
      for (const Parameter& p : model().parameters)
        if (auto found = place(p, tensor)) out.push_back(std::move(*found));
    };
    look();
    if (!out.empty()) return out;
    for (const Parameter& p : all_own_parameters(model())) {
      auto found = place(p, tensor);
      if (!found || p.absent_if.empty() || !embedding_like(p)) continue;
      found->shared = true;
      out.push_back(std::move(*found));
    }
    if (!out.empty()) return out;
    if (const auto config = config_with(model(), tensor); config && tensor.ends_with(kBias)) {
      for (const auto& [key, value] : *config)
        if (model().config.at(key) != value) out_.config[key] = value;
      changed_ = with_config(model(), out_.config);
      look();
    }
    if (out.empty()) refuse_target(model(), tensor.ends_with(kBias) ? tensor : target, name_);
    return out;
  }

  // The embedding that a model without the parameter uses in its place (tied), or null.
  const Parameter* embedding_like(const Parameter& p) const {
    for (const Parameter& e : model().parameters)
      if (e.role == "embedding" && e.shape == p.shape && e.hf_plus == p.hf_plus) return &e;
    return nullptr;
  }

  static std::string module_of(const Parameter& p) { return p.hf.substr(0, p.hf.rfind('.')); }

  // Only the module's copy changes: other users of the weight keep the model's.
  bool is_apart(const std::string& target) const { return config_.is_copy(target) && !config_.ties_copies(); }

  void take_whole(const file::StoredTensor& t, const WholeName& name) {
    for (const Place& place : places(name.tensor, name.target)) {
      const bool apart = is_apart(name.target);
      // Without a copy the weight stays tied.
      const Parameter* const embedding = place.shared ? embedding_like(place.parameter) : nullptr;
      const Parameter& p = embedding && !apart && !is_apart(module_of(*embedding)) ? *embedding : place.parameter;
      const Weight w = whole(t, p, place.fused);
      const auto [before, fresh] = given_weights_.emplace(p.name, w);
      if (!fresh && !equal(before->second, w))
        throw user_error("{}: two different weights for parameter {}, the second is '{}'", name_, p.name, t.name);
      // Weights equal to the model's are no change.
      if (const auto own = model().weights.find(p.name); own != model().weights.end() && equal(own->second, w))
        continue;
      if (apart) copies_.insert(p.name);
      out_.whole.emplace(p.name, w);
    }
  }

  // The values of a parameter before this adapter changes it.
  std::vector<float> values_before(const Parameter& p, bool shared) const {
    if (const auto changed = out_.whole.find(p.name); changed != out_.whole.end())
      return {changed->second.f32().begin(), changed->second.f32().end()};
    const std::string& name = shared ? embedding_like(p)->name : p.name;
    if (const auto changed = out_.whole.find(name); changed != out_.whole.end() && shared && !copies_.contains(name))
      return {changed->second.f32().begin(), changed->second.f32().end()};
    const Weight& w = model().weights.at(name);
    if (w.type.shape != p.shape)
      throw Error(Exit::user,
                  fmt::format("{}: the adapter's model has {} tokens, but the file has no parameter {} of that size",
                              name_, p.shape[0].number(), p.name),
                  "save the adapter with its embeddings (save_embedding_layers=True)");
    return values_of(w);
  }

  // Trained rows of an embedding or output replace the model's.
  void take_tokens(const file::StoredTensor& t, const std::string& module) {
    const std::vector<FolderConfig::Tokens>& all = config_.tokens();
    const auto tokens =
        std::ranges::find_if(all, [&](const FolderConfig::Tokens& x) { return module.ends_with(x.module); });
    if (tokens == all.end())
      throw user_error("{}: tensor '{}' has rows of trained tokens, but {} does not name the tokens", name_, t.name,
                       kAdapterConfig);
    // Different tokens for a module that shares the weight untie the two.
    const bool parted = std::ranges::any_of(all, [&](const FolderConfig::Tokens& x) { return x.ids != tokens->ids; });
    for (const Place& place : places(module + std::string(kWeight), module)) {
      const Parameter& p = place.parameter;
      if (place.shared && !parted && is_row_copy(t, *embedding_like(p))) continue;
      if (place.fused || p.shape.size() != 2 || (p.role != "embedding" && p.role != "output")) throw unmade(p, module);
      if (pairs_.contains(module))
        throw user_error("{}: '{}' has both a low-rank update and rows of trained tokens", name_, module);
      const int64_t columns = p.shape[1].number(), count = std::ssize(tokens->ids);
      if (t.shape != std::vector<int64_t>{count, columns}) refuse_shape(t, {count, columns}, name_);
      const std::vector<float> rows = floats_of(formats_, t, name_);
      std::vector<float> values = values_before(p, place.shared);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t id = tokens->ids[i];
        if (id >= p.shape[0].number())
          throw Error(Exit::user,
                      fmt::format("{}: token {} was trained, but '{}' has {} tokens", config_.file(), id, module,
                                  p.shape[0].number()),
                      "the adapter was made for another model, or for one with more tokens");
        for (int64_t k = 0; k < columns; ++k)
          values[id * columns + k] = static_cast<float>(rows[i * columns + k] + p.hf_plus);
      }
      out_.whole.insert_or_assign(p.name, f32_weight(p.shape, values));
      if (parted && p.role == "embedding") copies_.insert(p.name);
    }
  }

  // Whether the rows of a tied output equal those of the embedding.
  bool is_row_copy(const file::StoredTensor& t, const Parameter& embedding) const {
    const auto rows = token_rows_.find(module_of(embedding));
    return rows != token_rows_.end() && rows->second->shape == t.shape && rows->second->blob() == t.blob();
  }

  // B's bias is added to the module's bias.
  void add_bias(const file::StoredTensor& t, const std::string& target) {
    for (const Place& place : places(target + std::string(kBias), target)) {
      const Parameter& p = place.parameter;
      const Weight more = whole(t, p, place.fused, config_.scale(target));
      std::vector<float> values = values_before(p, false);
      for (size_t i = 0; i < values.size(); ++i) values[i] += more.f32()[i];
      out_.whole.insert_or_assign(p.name, f32_weight(p.shape, values));
    }
  }

  // Checks that each of modules_to_save that the model can have is in the file.
  void check_copies() const {
    for (const std::string& name : config_.copies()) {
      const auto has = [&](const std::string& target) {
        return target.ends_with(name) || ("." + target).find("." + name + ".") != std::string::npos;
      };
      if (std::ranges::any_of(whole_, [&](const auto& w) { return has(w.second.target); })) continue;
      const auto means = [&](const Parameter& p) { return !p.hf.empty() && has(module_of(p)); };
      const bool is_tied =
          config_.ties_copies() &&
          std::ranges::find(adapter_keys().tied, name.substr(name.rfind('.') + 1)) != adapter_keys().tied.end();
      if (is_tied || !std::ranges::any_of(all_own_parameters(model()), means)) continue;
      throw Error(Exit::user,
                  fmt::format("{}: \"modules_to_save\" of {} names '{}', but the file has no weight of it", name_,
                              kAdapterConfig, name),
                  "the file is not complete: save the adapter again");
    }
  }

  // Unties outputs that cannot share the model's embedding any longer: they are adapted, or the embedding became a
  // copy, which they do not follow.
  void set_apart() {
    for (const Parameter& p : all_own_parameters(model())) {
      const bool shares = !p.absent_if.empty() && !model().find(p.name) && embedding_like(p);
      if (shares && copies_.contains(embedding_like(p)->name)) apart_.push_back(p);
    }
    for (const Parameter& p : apart_) {
      const std::string& embedding = embedding_like(p)->name;
      const auto changed = out_.whole.find(embedding);
      const bool follows = changed != out_.whole.end() && !copies_.contains(embedding);
      out_.whole.emplace(p.name, follows ? changed->second : model().weights.at(embedding));
    }
  }

  // Checks that every weight whose shape differs from the model's is in the file.
  void check_sizes() const {
    for (const auto& [name, w] : out_.whole)
      for (const Parameter& p : all_own_parameters(model()))
        if (p.name == name && p.shape != w.type.shape) refuse_size(p);
    for (const Parameter& p : model().parameters) {
      const auto before = model().weights.find(p.name);
      if (before != model().weights.end() && before->second.type.shape != p.shape && !out_.whole.contains(p.name))
        refuse_size(p);
    }
  }
  [[noreturn]] void refuse_size(const Parameter& p) const {
    throw Error(Exit::user,
                fmt::format("{}: the adapter's model has {} tokens, but the file has no parameter {} of that size",
                            name_, p.shape[0].number(), p.name),
                "save the adapter with its embeddings (save_embedding_layers=True)");
  }

  static std::vector<float> values_of(const Weight& w) {
    return w.is_f32() ? std::vector<float>(w.f32().begin(), w.f32().end())
                      : decode(*w.type.element.format, w.bytes, w.rows(), w.columns());
  }

  static bool equal(const Weight& a, const Weight& b) {
    return a.type.shape == b.type.shape && values_of(a) == values_of(b);
  }

  // A tensor in the parameter's layout; with a factor, as an addend.
  Weight whole(const file::StoredTensor& t, const Parameter& p, bool fused, std::optional<double> factor = {}) const {
    if (p.shape.size() > 2 || p.shape.empty() || (fused && p.hf_transposed && p.shape.size() == 2))
      throw user_error("{}: '{}' is not one matrix of the model (parameter {})", name_, t.name, p.name);
    const bool is_vector = p.shape.size() == 1;
    graph::Shape shape = p.shape;
    if (p.hf_transposed && !is_vector) std::swap(shape[0], shape[1]);
    if (fused) shape[0] = graph::Dim(shape[0].number() * p.hf_parts);
    std::vector<int64_t> wanted;
    for (const graph::Dim& d : shape) wanted.push_back(d.number());
    if (t.shape != wanted)
      throw Error(Exit::user,
                  fmt::format("{}: tensor '{}' has shape {}, but the model needs {}", name_, t.name,
                              shape_text(t.shape), shape_text(wanted)),
                  "the adapter was made for another model, or for one with more tokens");
    std::vector<float> values = floats_of(formats_, t, name_);
    for (float& v : values) v = static_cast<float>(factor ? v * *factor : v + p.hf_plus);
    if (is_vector) shape.emplace_back(1);
    Weight w = f32_weight(shape, values);
    if (fused) w = rows_of_part(w, p);
    if (p.hf_transposed && !is_vector) w = transposed(w);
    to_own_order(w, p);
    w.type.shape = p.shape;
    return w;
  }

  // A tensor that each pair has besides A and B if the config sets `key`, and no pair has otherwise.
  struct Companion {
    const file::StoredTensor* Pair::* place;
    const char* noun;
    const char* full_noun;
    const char* key;
    bool is_wanted, is_of_embeddings;
  };

  void put(const Companion& c, const std::vector<std::pair<const file::StoredTensor*, std::string>>& tensors) {
    for (const auto& [t, target] : tensors) {
      if (!c.is_wanted)
        throw user_error("{}: tensor '{}' is a {}, but {} does not set \"{}\"", name_, t->name, c.full_noun,
                         kAdapterConfig, c.key);
      const auto pair = pairs_.find(target);
      if (pair == pairs_.end() || pair->second.*c.place)
        throw user_error("{}: tensor '{}' is a {} of {}", name_, t->name, c.noun,
                         pair == pairs_.end() ? "a module that is not adapted" : "a module that has one already");
      pair->second.*c.place = t;
    }
    if (!c.is_wanted) return;
    for (const auto& [target, pair] : pairs_)
      if (!(pair.*c.place) && (c.is_of_embeddings || !pair.looked_up))
        throw user_error("{}: {} sets \"{}\", but '{}' has no {}", name_, kAdapterConfig, c.key, target, c.noun);
  }
  void put_biases(const std::vector<std::pair<const file::StoredTensor*, std::string>>& biases) {
    put({&Pair::bias, "bias", "bias of B", "lora_bias", config_.has_bias(), false}, biases);
  }
  void put_magnitudes(const std::vector<std::pair<const file::StoredTensor*, std::string>>& magnitudes) {
    put({&Pair::magnitude, "magnitude", "magnitude", "use_dora", config_.has_magnitudes(), true}, magnitudes);
  }

  // One number for each row of the target (of an embedding: column), in our order.
  Weight magnitude(const file::StoredTensor& t, const Parameter& p, bool looked_up, bool fused) const {
    const int64_t own = p.shape[looked_up ? 1 : 0].number(), count = own * (fused ? p.hf_parts : 1);
    int64_t held = 1;
    for (const int64_t d : t.shape) held *= d;
    if (t.shape.empty() || t.shape.size() > 2 || held != count) refuse_shape(t, {count}, name_);
    Weight w = f32_weight({graph::Dim(count), graph::Dim(1)}, floats_of(formats_, t, name_));
    if (fused) w = rows_of_part(w, p);
    if (!looked_up) rows_to_own_order(w, p);
    w.type.shape = {graph::Dim(own)};
    return w;
  }

  void take_part(const Place& place, const std::string& target, const Pair& pair) {
    const Parameter& p = place.parameter;
    require_matrix(p, target, name_);
    put_part(p, part(p, target, pair, place.fused), target);
    if (place.shared) apart_.push_back(p);
  }

  void put_part(const Parameter& p, AdapterPart part, const std::string& target) {
    if (!out_.parts.emplace(p.name, std::move(part)).second)
      throw user_error("{}: parameter {} is adapted twice, the second time as '{}'", name_, p.name, target);
  }

  AdapterPart part(const Parameter& p, const std::string& target, const Pair& pair, bool fused) {
    if (pair.looked_up != is_looked_up(p))
      throw user_error("{}: '{}' is adapted as {}, but the model uses it differently", name_, target,
                       pair.looked_up ? "an embedding" : "a product");
    AdapterPart out;
    out.a = matrix_in(formats_, *pair.a, name_);
    out.b = matrix_in(formats_, *pair.b, name_);
    const int64_t rank = out.rank();
    if (rank != config_.rank(target))
      throw user_error("{}: '{}' has rank {}, but {} has {}", name_, target, rank, kAdapterConfig,
                       config_.rank(target));
    const int64_t rows = p.shape[0].number(), columns = p.shape[1].number();
    if (pair.looked_up) {  // A is [rank, N], B [K, rank]
      require_shape(out.a, rank, rows, *pair.a, name_);
      require_shape(out.b, columns, rank, *pair.b, name_);
      out.a = transposed(out.a);
    } else {
      require_shape(out.a, rank, columns, *pair.a, name_);
      require_shape(out.b, rows * (fused ? p.hf_parts : 1), rank, *pair.b, name_);
      if (fused) out.b = rows_of_part(out.b, p);
      check_pairs(*model().family, model().config, p, model().name);
      rows_to_own_order(out.b, p);
      columns_to_own_order(out.a, p);
    }
    if (pair.magnitude) out.magnitude = magnitude(*pair.magnitude, p, pair.looked_up, fused);
    out.scale = config_.scale(target);
    return out;
  }

  const Model& given_;
  std::optional<Model> changed_;
  const FormatLibrary& formats_;
  FolderConfig config_;
  file::SafetensorsFile file_;
  std::string name_;
  Adapter out_;
  Pairs pairs_;
  std::vector<std::pair<const file::StoredTensor*, WholeName>> whole_;
  std::map<std::string, const file::StoredTensor*> token_rows_;   // by module
  std::map<std::string, std::map<int, const Pair*>> nested_;      // updates of target_parameters, by module and depth
  std::map<std::string, Weight> given_weights_;                   // full weights, by parameter
  std::set<std::string> copies_;                                  // parameters replaced by copies
  std::map<std::string, std::map<int64_t, AdapterPart>> stacks_;  // by parameter and number
  std::vector<Parameter> apart_;                                  // weights that the model lacks, and will have
};

}  // namespace

Adapter read_folder_adapter(const Model& model, const std::filesystem::path& folder) {
  return FolderReader(model, folder).read();
}

}  // namespace lumen::model::arch
