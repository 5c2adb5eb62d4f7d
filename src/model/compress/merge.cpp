#include "model/compress/merge.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "model/arch/split_weights.h"
#include "model/compress/relative_error.h"
#include "model/recipe/record/provenance.h"

namespace lumen::model::compress {
namespace {

std::string element_name(const arch::Weight& w) {
  return w.is_f32() ? "f32" : w.type.element.format->name;
}

std::vector<const arch::Adapter*> pointers(std::span<const arch::ScaledAdapter> adapters) {
  std::vector<const arch::Adapter*> out;
  for (const arch::ScaledAdapter& s : adapters) out.push_back(&s.adapter);
  return out;
}

// Outputs tied to the embedding where an adapter changes only the embedding: they become separate weights, because at
// run time such an adapter leaves them unchanged.
arch::Model with_outputs_apart(arch::Model model, std::span<const arch::ScaledAdapter> adapters) {
  arch::Adapter apart;
  for (const arch::Parameter& p : all_own_parameters(model)) {
    if (p.absent_if.empty() || model.find(p.name)) continue;
    for (const arch::Parameter& e : model.parameters) {
      if (e.role != "embedding" || e.shape != p.shape || e.hf_plus != p.hf_plus || !is_adapted(e.name, adapters))
        continue;
      apart.whole[p.name] = model.weights.at(e.name);
      note(fmt::format(
          "'{}' is the output matrix as well; the output becomes a separate weight, which the adapter does not change",
          e.gguf));
    }
  }
  if (apart.whole.empty()) return model;
  return with_whole_weights(model, std::vector<const arch::Adapter*>{&apart});
}

}  // namespace

Merge::Merge(run::Engine& engine, const arch::Model& base, std::span<const arch::ScaledAdapter> adapters,
             MergeOptions options)
    : engine_(engine), adapters_(adapters), options_(std::move(options)) {
  for (const arch::ScaledAdapter& s : adapters) require_scale(s);
  base_ = with_outputs_apart(with_whole_weights(base, pointers(adapters)), adapters);
  result_ = base_;
  std::map<std::string, FormatRef> chosen;
  if (options_.type != MergeOptions::kBaseType) {
    QuantizeOptions quantize;
    quantize.target = options_.type;
    quantize.fallbacks = options_.fallbacks;
    QuantizeReport report;
    chosen = choose_formats(base_, quantize, &report);
    file_type_ = report.file_type;
  } else if (base.metadata.has("general.file_type")) {
    file_type_ = base.metadata.integer("general.file_type");
  }
  for (const arch::Parameter& p : base_.parameters) {
    arch::Weight& w = result_.weights.at(p.name);
    const auto choice = chosen.find(p.name);
    const FormatRef format = choice == chosen.end() ? w.type.element.format : choice->second;
    const bool same =
        format ? w.type.element.format && format->hash == w.type.element.format->hash : !w.type.element.format;
    const bool plain = !format || arch::is_plain(*format, Scalar::f32);
    const bool adapted = is_adapted(p.name, adapters_);
    if (!adapted && (same || (plain && w.is_f32()))) continue;
    if (!plain && !format->encodes())
      throw Error(Exit::user,
                  fmt::format("'{}' is held in '{}', which can be read but not written", p.gguf, format->name),
                  "name another format with --type");
    if (options_.hugging_face && !plain && format->safetensors_type.empty())
      throw Error(
          Exit::user,
          fmt::format("'{}' would be held in '{}', which has no place in a Hugging Face folder", p.name, format->name),
          "add --type with a float format, or write a GGUF file");
    w.type.element = {Scalar::f32, plain ? nullptr : format};
    w.bytes = {};
  }
  if (options_.hugging_face) {
    for (const arch::Parameter& p : base_.parameters) {
      const arch::Weight& w = result_.weights.at(p.name);
      if (!w.is_f32() && w.type.element.format->safetensors_type.empty())
        throw Error(Exit::user,
                    fmt::format("'{}' is held in '{}', which has no place in a Hugging Face folder", p.name,
                                w.type.element.format->name),
                    "add --type with a float format, or write a GGUF file");
    }
  }
  recipe::set_record(result_.metadata, options_.record);
}

arch::Weight Merge::make(const arch::Parameter& p, MergedTensor* line) {
  const arch::Weight& old = base_.weights.at(p.name);
  const graph::Type& type = result_.weights.at(p.name).type;
  line->name = p.gguf.empty() ? p.name : p.gguf;
  line->from = element_name(old);
  line->changed = is_adapted(p.name, adapters_);
  std::vector<float> values = line->changed ? adapted_values(engine_, p, old, adapters_) : values_of(engine_, old);
  if (const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
      bad != values.end())
    throw Error(Exit::numeric, fmt::format("'{}' with the adapter holds {}", line->name, *bad),
                "the adapter or the model is broken");
  if (line->changed) {
    const std::vector<float> before = values_of(engine_, old);
    line->change = relative_error(values, before);
  }
  arch::Weight out;
  out.type = type;
  if (out.is_f32()) {
    out = arch::f32_weight(type.shape, values);
  } else {
    out.bytes = engine_.encode(type.element.format, values.data(), out.rows(), out.columns());
    line->error =
        relative_error(engine_.decode(type.element.format, out.bytes.data(), out.rows(), out.columns()), values);
  }
  line->to = element_name(out);
  return out;
}

MergeReport Merge::write(const std::filesystem::path& path, const std::function<void(const MergedTensor&)>& progress) {
  MergeReport report;
  const auto source = [&](const arch::Parameter& p) {
    MergedTensor line;
    arch::Weight w = make(p, &line);
    if (progress) progress(line);
    report.tensors.push_back(std::move(line));
    return w;
  };
  if (options_.hugging_face)
    write_hf(result_, path, source);
  else
    write_gguf(result_, path, file_type_, 0, source);
  return report;
}

std::string MergeReport::text() const {
  std::string out = fmt::format("{:<32} {:>10} -> {:<12} {:>10} {:>10}\n", "tensor", "from", "to", "change", "error");
  for (const MergedTensor& t : tensors)
    out += fmt::format("{:<32} {:>10} -> {:<12} {:>10} {:>10}\n", t.name, t.from, t.to,
                       t.changed ? fmt::format("{:.5f}", t.change) : "-",
                       t.error > 0 ? fmt::format("{:.5f}", t.error) : "-");
  return out;
}

}  // namespace lumen::model::compress
