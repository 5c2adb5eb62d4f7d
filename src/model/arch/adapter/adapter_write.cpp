#include "model/arch/adapter/adapter_write.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/adapter/adapter_stack.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/split_weights.h"
#include "model/file/gguf.h"
#include "model/file/safetensors.h"

namespace lumen::model::arch {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kWeight = ".weight", kExpert = "{e}";

const Parameter& parameter_of(const Model& model, const std::vector<Parameter>& all, const std::string& name) {
  if (const Parameter* p = model.find(name)) return *p;
  for (const Parameter& p : all)
    if (p.name == name) return p;
  throw user_error("the adapter changes '{}', which models of the family '{}' do not have", name, model.family->name());
}

// Scales that files cannot hold become a factor of B.
AdapterPart with_positive_scale(AdapterPart part) {
  if (part.scale > 0 && std::isfinite(part.scale)) return part;
  std::vector<float> values(part.b.f32().begin(), part.b.f32().end());
  for (float& v : values) v = static_cast<float>(v * part.scale);
  part.b = f32_weight(part.b.type.shape, values);
  part.scale = 1;
  return part;
}

// The most frequent value; of several the smallest.
template <typename T>
T most_frequent(const std::vector<T>& values) {
  std::map<T, int> counts;
  for (const T& v : values) ++counts[v];
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& x, const auto& y) { return x.second < y.second; })
      ->first;
}

// Rounds a value that was a whole number before it was divided by the rank and multiplied again.
double tidy(double alpha) {
  const double whole = std::round(alpha);
  return std::abs(alpha - whole) < 1e-6 * std::max(1.0, std::abs(alpha)) && whole > 0 ? whole : alpha;
}

file::TensorSpec spec_of(std::string name, const Weight& w) {
  file::TensorSpec spec;
  spec.name = std::move(name);
  for (const graph::Dim& d : w.type.shape) spec.shape.push_back(d.number());
  spec.element = w.type.element;
  return spec;
}

// ---- Folders: names and row orders of Hugging Face models.

struct Target {
  std::string name;  // of the module
  AdapterPart part;  // in the folder's order
  bool looked_up = false, transposed = false;
  double alpha = 0;
};

class Folder {
 public:
  Folder(const Model& model, const Adapter& adapter)
      : model_(model), adapter_(adapter), all_(all_own_parameters(model)) {
    for (const auto& [name, part] : adapter.parts) take(parameter_of(model, all_, name), with_positive_scale(part));
    for (const auto& [name, weight] : adapter.whole) {
      const Parameter& p = parameter_of(model, all_, name);
      if (!is_shared(p, weight)) take_whole(p, weight);
    }
    if (targets_.empty()) throw user_error("the adapter '{}' has no low-rank updates", adapter.name);
  }

  void write(const std::filesystem::path& path, const AdapterFile& about) const {
    std::vector<std::pair<std::string, Weight>> tensors;
    const auto add = [&](const std::string& name, const Weight& w) {
      tensors.emplace_back("base_model.model." + name, w);
    };
    for (const Target& t : targets_) {
      add(t.name + (t.looked_up ? ".lora_embedding_A" : ".lora_A.weight"), t.part.a);
      add(t.name + (t.looked_up ? ".lora_embedding_B" : ".lora_B.weight"), t.part.b);
      if (t.part.magnitude) add(t.name + ".lora_magnitude_vector", *t.part.magnitude);
    }
    for (const auto& [name, w] : whole_) add(name, w);
    std::sort(tensors.begin(), tensors.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    AtomicFolder out(path);
    file::SafetensorsMetadata metadata = {{"format", "pt"}};
    metadata.insert(about.record.begin(), about.record.end());
    std::vector<file::TensorSpec> specs;
    for (const auto& [name, w] : tensors) specs.push_back(spec_of(name, w));
    file::SafetensorsWriter writer(out.path() / kAdapterWeights, metadata, specs);
    for (const auto& [name, w] : tensors) writer.write(w.bytes);
    writer.commit();
    write_file_atomic(out.path() / kAdapterConfig, config(about.base).dump(2) + "\n");
    if (!about.chat_template.empty()) write_file_atomic(out.path() / "chat_template.jinja", about.chat_template);
    out.commit();
  }

 private:
  std::string module_of(const Parameter& p) const {
    if (p.hf.ends_with(kWeight)) return p.hf.substr(0, p.hf.size() - kWeight.size());
    throw Error(Exit::user,
                fmt::format("parameter '{}' of the family '{}' has no module of its own in Hugging Face models, so a "
                            "folder cannot hold its update",
                            p.name, model_.family->name()),
                "write a GGUF adapter, or merge the adapter with `lumen merge`");
  }

  // An embedding that equals the changed output: the folder holds it once, as the output.
  bool is_shared(const Parameter& embedding, const Weight& weight) const {
    if (embedding.role != "embedding") return false;
    return std::any_of(all_.begin(), all_.end(), [&](const Parameter& p) {
      if (p.absent_if.empty() || model_.find(p.name) || !adapter_.parts.contains(p.name)) return false;
      const auto output = adapter_.whole.find(p.name);
      return output != adapter_.whole.end() && output->second.type == weight.type &&
             output->second.bytes == weight.bytes;
    });
  }

  void take(const Parameter& p, AdapterPart part) {
    const std::string module = module_of(p);
    Target t;
    t.looked_up = is_looked_up(p);
    t.transposed = p.hf_transposed;
    t.alpha = tidy(part.scale * (adapter_.by_root ? std::sqrt(part.rank()) : part.rank()));
    if (t.looked_up) part.a = transposed(part.a);
    if (!t.looked_up) {
      rows_to_folder_order(part.b, p);
      columns_to_folder_order(part.a, p);
      if (part.magnitude) rows_to_folder_order(*part.magnitude, p);
    }
    const size_t expert = module.find(kExpert);
    if (expert == std::string::npos) {
      t.name = module;
      t.part = std::move(part);
      targets_.push_back(std::move(t));
      return;
    }
    for (int64_t e = 0; e < p.shape[0].number(); ++e) {
      Target one = t;
      one.name = module;
      one.name.replace(expert, kExpert.size(), std::to_string(e));
      one.part = matrix_of(part, e);
      targets_.push_back(std::move(one));
    }
  }

  void take_whole(const Parameter& p, const Weight& weight) {
    const std::string module = module_of(p);
    if (module.find(kExpert) != std::string::npos)
      throw Error(Exit::user,
                  fmt::format("a folder cannot hold the full weight of parameter '{}', a stack of matrices", p.name),
                  "merge the adapter with `lumen merge`");
    std::vector<float> values;
    const Weight floats = decoded(weight);
    for (const float v : floats.f32()) values.push_back(static_cast<float>(v - p.hf_plus));
    Weight w = f32_weight(weight.type.shape, values);
    to_folder_order(w, p);
    if (p.hf_transposed && w.type.shape.size() > 1) w = transposed(w);
    // With a low-rank update it is the base layer of that update; alone it is a trained copy.
    const bool beside = adapter_.parts.contains(p.name);
    if (!beside) copies_.insert(module.substr(module.rfind('.') + 1));
    whole_.emplace_back(module + (beside ? ".base_layer.weight" : ".weight"), w);
  }

  // Modules by the last part of their name where all modules of that name are targets, else by their full name.
  std::vector<std::string> target_modules() const {
    const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
    std::set<std::string> meant, out;
    for (const Target& t : targets_) meant.insert(t.name);
    std::set<std::string> partly;
    for (const Parameter& p : all_) {
      if (p.shape.size() != 2 || !p.hf.ends_with(kWeight)) continue;
      const std::string module = p.hf.substr(0, p.hf.size() - kWeight.size());
      if (!meant.contains(module)) partly.insert(last(module));
    }
    for (const Target& t : targets_) out.insert(partly.contains(last(t.name)) ? t.name : last(t.name));
    return {out.begin(), out.end()};
  }

  // Integral values as integers: some readers require them.
  static ordered_json number(double x) {
    return x == std::round(x) && x < 1e9 ? ordered_json(static_cast<int64_t>(x)) : ordered_json(x);
  }

  ordered_json config(const std::string& base) const {
    std::vector<int64_t> ranks;
    std::vector<double> alphas;
    bool magnitudes = false, turned = false;
    for (const Target& t : targets_) {
      ranks.push_back(t.part.rank());
      alphas.push_back(t.alpha);
      magnitudes = magnitudes || t.part.magnitude;
      turned |= t.transposed;
    }
    for (const Target& t : targets_)
      if (t.part.magnitude.has_value() != magnitudes)
        throw user_error("the adapter has magnitudes for some weights, but none for '{}': a folder needs them for all",
                         t.name);
    const int64_t rank = most_frequent(ranks);
    const double alpha = most_frequent(alphas);
    ordered_json rank_pattern = ordered_json::object(), alpha_pattern = ordered_json::object();
    for (const Target& t : targets_) {
      if (t.part.rank() != rank) rank_pattern[t.name] = t.part.rank();
      if (t.alpha != alpha) alpha_pattern[t.name] = number(t.alpha);
    }
    ordered_json c = ordered_json::object();
    c["alpha_pattern"] = alpha_pattern;
    c["auto_mapping"] = nullptr;
    c["base_model_name_or_path"] = base.empty() ? model_.name : base;
    c["bias"] = "none";
    c["fan_in_fan_out"] = turned;
    c["inference_mode"] = true;
    c["init_lora_weights"] = true;
    c["lora_alpha"] = number(alpha);
    c["lora_dropout"] = 0.0;
    c["modules_to_save"] = nullptr;
    if (!copies_.empty()) c["modules_to_save"] = copies_;
    c["peft_type"] = "LORA";
    c["r"] = rank;
    c["rank_pattern"] = rank_pattern;
    c["revision"] = nullptr;
    c["target_modules"] = target_modules();
    c["task_type"] = "CAUSAL_LM";
    c["use_dora"] = magnitudes;
    c["use_rslora"] = adapter_.by_root;
    return c;
  }

  const Model& model_;
  const Adapter& adapter_;
  const std::vector<Parameter> all_;
  std::vector<Target> targets_;
  std::vector<std::pair<std::string, Weight>> whole_;
  std::set<std::string> copies_;  // modules_to_save
};

}  // namespace

void check_adapter_folder(const Model& model, const Adapter& adapter) {
  (void)Folder(model, adapter);
}

void write_adapter_folder(const Model& model, const Adapter& adapter, const std::filesystem::path& folder,
                          const AdapterFile& about) {
  Folder(model, adapter).write(folder, about);
}

void check_adapter_gguf(const Model& model, const Adapter& adapter) {
  if (model.family->gguf_architecture().empty())
    throw user_error("the family '{}' has no name in GGUF files", model.family->name());
  if (!adapter.whole.empty())
    throw Error(Exit::user,
                fmt::format("a GGUF adapter cannot hold full weights, but '{}' is one", adapter.whole.begin()->first),
                "merge the adapter with `lumen merge`, or write a folder");
  for (const auto& [name, part] : adapter.parts) {
    if (part.magnitude)
      throw Error(Exit::user, fmt::format("a GGUF adapter cannot hold magnitudes (DoRA), and '{}' has one", name),
                  "merge the adapter with `lumen merge`, or write a folder");
    const Parameter* p = model.find(name);
    if (!p) throw user_error("the adapter changes '{}', which the model does not have", name);
    if (p->gguf.empty()) throw user_error("parameter '{}' has no name in GGUF files", name);
  }
  if (adapter.parts.empty()) throw user_error("the adapter '{}' has no low-rank updates", adapter.name);
}

void write_adapter_gguf(const Model& model, const Adapter& adapter, const std::filesystem::path& path,
                        const AdapterFile& about) {
  check_adapter_gguf(model, adapter);
  std::map<std::string, AdapterPart> parts;
  std::vector<double> alphas;
  for (const auto& [name, part] : adapter.parts) {
    const AdapterPart& own = parts.emplace(name, with_positive_scale(part)).first->second;
    alphas.push_back(tidy(own.scale * own.rank()));
  }
  // GGUF files have one alpha; differences become a factor of B.
  const auto alpha = static_cast<float>(most_frequent(alphas));
  std::vector<file::TensorSpec> specs;
  std::vector<Weight> weights;
  const auto add = [&](const std::string& name, const Weight& w) {
    specs.push_back(spec_of(name, w));
    weights.push_back(w);
  };
  for (const Parameter& p : model.parameters) {
    const auto found = parts.find(p.name);
    if (found == parts.end()) continue;
    const AdapterPart& part = found->second;
    Weight b = part.b;
    if (const double factor = part.scale * part.rank() / alpha; std::abs(factor - 1) > 1e-7) {
      std::vector<float> values(b.f32().begin(), b.f32().end());
      for (float& v : values) v = static_cast<float>(v * factor);
      b = f32_weight(b.type.shape, values);
    }
    add(p.gguf + ".lora_a", part.a);
    add(p.gguf + ".lora_b", b);
  }
  file::GgufMetadata metadata;
  metadata.set("general.architecture", model.family->gguf_architecture());
  metadata.set("general.type", std::string("adapter"));
  metadata.set("general.name", adapter.name.empty() ? model.name : adapter.name);
  metadata.set("general.base_model.count", uint32_t{1});
  metadata.set("general.base_model.0.name", about.base.empty() ? model.name : about.base);
  metadata.set("adapter.type", std::string("lora"));
  metadata.set("adapter.lora.alpha", alpha);
  for (const auto& [key, value] : about.record) metadata.set(key, value);
  if (!about.chat_template.empty()) metadata.set("tokenizer.chat_template", about.chat_template);
  file::GgufWriter writer(path, metadata, specs);
  for (const Weight& w : weights) writer.write({w.bytes.data(), w.bytes.size()});
  writer.commit();
}

}  // namespace lumen::model::arch
