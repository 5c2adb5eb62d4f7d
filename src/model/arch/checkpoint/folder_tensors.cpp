#include "model/arch/checkpoint/folder_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "base/file/leave.h"
#include "model/arch/checkpoint/packed/held_tensors.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/parts.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/checkpoint/written.h"
#include "model/arch/held_formats.h"

namespace lumen::model::arch {
namespace {

bool is_rounded_type(const graph::Type& type) {
  Weight w;
  w.type = type;
  return is_rounded(w);
}

// A weight in the folder's layout before packing; `turned`: transposed to [in, out].
Weight in_folder(const Parameter& p, Weight w, bool turned) {
  to_folder_order(w, p);
  if (p.hf_plus != 0) {
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (float& v : values) v = static_cast<float>(v - p.hf_plus);
    w = f32_weight(w.type.shape, values);
  }
  if (turned) w = transposed(is_rounded(w) ? decoded(w) : w);
  return w;
}
graph::Type type_in_folder(graph::Type type, bool turned) {
  if (!turned || type.shape.size() < 2) return type;
  if (is_rounded_type(type)) type.element = {Scalar::f32, nullptr};
  std::swap(type.shape[type.shape.size() - 2], type.shape.back());
  return type;
}

// One weight of the folder, with a name of its own.
struct Entry {
  std::string name;
  graph::Type type;
  std::function<Weight()> make;
  bool is_matrix = false;                // of a linear layer
  std::optional<HeldFormat> input = {};  // format of its quantized input
};

class Entries {
 public:
  Entries(const Model& model, const WeightSource& source, const graph::Config& back, const std::string& output)
      : model_(model),
        source_(source),
        inputs_(encoded_inputs(model)),
        packs_(!output.empty()),
        unturned_(packs_ && Packing::is_unturned(output)),
        float_experts_(packs_ && Packing::has_float_experts(output)) {
    std::map<std::string, std::vector<const Parameter*>> between;  // several in one tensor, by its name
    for (const Parameter& p : model.parameters) {
      if (is_omitted(model, p, back)) continue;
      if (!p.hf_rows.empty()) {
        between[p.hf_rows].push_back(&p);
      } else {
        if (p.hf.empty()) throw user_error("parameter '{}' has no name in Hugging Face folders", p.name);
        add(p);
      }
    }
    for (const auto& [name, parts] : between) add_whole(name, parts);
    require_packed_inputs();
  }

  std::vector<Entry> all;
  std::vector<std::string> decoded_names;

 private:
  // The input format of products with these weights, which are one weight in the folder.
  std::optional<HeldFormat> input_of(const std::string& name, const std::vector<const Parameter*>& parts) const {
    std::optional<HeldFormat> out;
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto at = std::ranges::find(inputs_, parts[i]->name, &graph::EncodedInput::weight);
      std::optional<HeldFormat> own;
      if (at != inputs_.end()) own = {at->format, at->scale};
      const bool same = i == 0 || (own.has_value() == out.has_value() &&
                                   (!own || (own->format->hash == out->format->hash && own->scale == out->scale)));
      if (!same)
        throw Error(Exit::user,
                    fmt::format("'{}' is one weight in folders, but its parts have inputs in different formats", name),
                    "write a GGUF file");
      out = std::move(own);
    }
    return out;
  }

  void require_packed_inputs() const {
    for (const Entry& e : all)
      if (e.input && !(packs_ && is_rounded_type(e.type)))
        throw Error(Exit::user,
                    fmt::format("the input of '{}' is held in '{}', which a folder supports only for packed weights",
                                e.name, e.input->format->name),
                    "write a GGUF file");
  }

  void add(const Parameter& p) {
    const Weight& w = model_.weights.at(p.name);
    const bool turned = p.hf_transposed && !(unturned_ && is_rounded(w));
    // Readers of packed folders support only packed linear layers.
    const bool is_expert = p.hf.find("{e}") != std::string::npos;
    const bool decodes = packs_ && is_rounded(w) && (p.role == "embedding" || (is_expert && float_experts_));
    if (packs_ && !decodes && turned && is_rounded(w))
      throw Error(Exit::user,
                  fmt::format("'{}' is transposed in folders of this family, and cannot be packed in rows of '{}'",
                              p.name, w.type.element.format->name),
                  "write a GGUF file");
    if (decodes) decoded_names.push_back(p.gguf);
    const auto make = [this_model = &model_, &p, source = &source_, turned, as_floats = decodes || p.hf_scalar] {
      const Weight own = fetched(*this_model, p, *source);
      Weight out = in_folder(p, as_floats ? decoded(own) : own, turned);
      if (out.bytes.data() != own.bytes.data()) leave_to_file({own.bytes.data(), own.bytes.size()});
      return out;
    };
    graph::Type type = type_in_folder(w.type, turned);
    if (!p.hf_shape.empty() || p.hf_scalar) type.shape = p.hf_shape;
    if (decodes || p.hf_scalar) type.element = {Scalar::f32, nullptr};
    const bool is_matrix = !p.is_vector() && p.role != "embedding";
    const size_t expert = p.hf.find("{e}");
    if (expert == std::string::npos) {
      all.push_back({p.hf, type, make, is_matrix, input_of(p.hf, {&p})});
      return;
    }
    const graph::Shape one(type.shape.begin() + 1, type.shape.end());
    const int64_t count = type.shape[0].number();
    const auto stacked = std::make_shared<Weight>();  // kept while its parts are written
    for (int64_t e = 0; e < count; ++e) {
      std::string name = p.hf;
      const auto part = [make, stacked, one, e, count] {
        if (e == 0) *stacked = make();
        const int64_t rows = stacked->rows() / count;
        std::vector<int64_t> source_rows(rows);
        for (int64_t r = 0; r < rows; ++r) source_rows[r] = e * rows + r;
        Weight out = take_rows(*stacked, one, source_rows);
        if (e + 1 == count) *stacked = {};
        return out;
      };
      all.push_back(
          {name.replace(expert, 3, std::to_string(e)), {one, type.element}, part, is_matrix, input_of(p.hf, {&p})});
    }
  }

  void add_whole(const std::string& name, const std::vector<const Parameter*>& parts) {
    const bool as_rows = unturned_ && is_rounded(model_.weights.at(parts.front()->name));
    const bool is_matrix = !parts.front()->is_vector() && parts.front()->role != "bias";
    graph::Type type = type_of_whole(model_, parts, as_rows);
    if (!parts.front()->hf_shape.empty()) type.shape = parts.front()->hf_shape;
    all.push_back({name, type,
                   [model = &model_, source = &source_, parts, as_rows] {
                     Model some;
                     some.family = model->family;
                     for (const Parameter* p : parts) some.weights[p->name] = fetched(*model, *p, *source);
                     return whole_of(some, parts, as_rows);
                   },
                   is_matrix, input_of(name, parts)});
  }

  const Model& model_;
  const WeightSource& source_;
  std::vector<graph::EncodedInput> inputs_;
  bool packs_, unturned_, float_experts_;
};

// Matrices that are modules for readers but absent from the model: a tied output. Such a module shares the embedding's
// floats, so it is listed as not packed.
std::vector<std::string> shared_matrices(const Model& model, const std::vector<Entry>& entries) {
  std::vector<std::string> out;
  for (const Parameter& p : model.family->all_parameters(model.config)) {
    const bool is_absent = !p.absent_if.empty() && model.config.at(p.absent_if) != 0;
    if (!is_absent || p.is_vector() || p.role == "embedding" || p.hf.empty()) continue;
    if (std::ranges::find(entries, p.hf, &Entry::name) == entries.end()) out.push_back(p.hf);
  }
  return out;
}

// The format of keys and values; a folder has only one setting for both.
std::optional<HeldFormat> cache_of(const Model& model) {
  const std::vector<graph::EncodedState> states = encoded_states(model);
  if (states.empty()) return std::nullopt;
  if (states.size() != 2 || states[0].format->hash != states[1].format->hash)
    throw Error(Exit::user, fmt::format("'{}': a folder has one format for both keys and values", model.name),
                "write a GGUF file");
  return HeldFormat{states[0].format, 1.0};
}

void add_cache_scales(const Model& model, FolderTensors& out) {
  const std::vector<graph::EncodedState> states = encoded_states(model);
  if (states.empty()) return;
  const std::vector<std::string> prefixes = attention_prefixes(model);
  const HeldRule& rule = out.packing->cache_rule();
  for (size_t layer = 0; layer < prefixes.size(); ++layer)
    for (size_t k = 0; k < states.size(); ++k) {
      out.specs.push_back(scale_spec(rule, prefixes[layer] + (k == 0 ? rule.scale : rule.values)));
      const float scale = states[k].scales[layer];
      out.make.emplace_back([scale] {
        std::vector<uint8_t> bytes(sizeof scale);
        std::memcpy(bytes.data(), &scale, sizeof scale);
        return Bytes(std::move(bytes));
      });
    }
}

}  // namespace

FolderTensors folder_tensors(const Model& model, const WeightSource& source, const graph::Config& back,
                             const std::string& output) {
  Entries entries(model, source, back, output);
  FolderTensors out;
  out.decoded = entries.decoded_names;
  if (!output.empty()) {
    std::vector<Packing::Announced> packed;
    std::vector<std::string> left = shared_matrices(model, entries.all);
    for (const Entry& e : entries.all) {
      if (is_rounded_type(e.type))
        packed.push_back({e.name, e.type, e.input});
      else if (e.is_matrix)
        left.push_back(e.name);
    }
    out.packing = std::make_shared<const Packing>(output, model.family->library().formats(), packed, std::move(left),
                                                  cache_of(model));
  }
  for (Entry& e : entries.all) {
    if (!out.packing || !is_rounded_type(e.type)) {
      out.specs.push_back(spec_of(e.name, e.type));
      out.make.emplace_back([make = std::move(e.make)] { return make().bytes; });
      continue;
    }
    const std::vector<file::TensorSpec>& specs = out.packing->specs(e.name);
    const auto tensors = std::make_shared<std::vector<Bytes>>();  // kept while they are written
    for (size_t i = 0; i < specs.size(); ++i) {
      out.specs.push_back(specs[i]);
      out.make.emplace_back([make = e.make, name = e.name, packing = out.packing, tensors, i, last = specs.size() - 1] {
        if (i == 0) *tensors = packing->pack(name, make());
        Bytes own = (*tensors)[i];
        (*tensors)[i] = {};
        if (i == last) tensors->clear();
        return own;
      });
    }
  }
  if (out.packing) add_cache_scales(model, out);
  return out;
}

}  // namespace lumen::model::arch
