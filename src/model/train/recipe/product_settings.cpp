#include "model/train/recipe/product_settings.h"

#include "base/error.h"
#include "base/ordinal.h"

namespace lumen::model {

FormatRef encodable(const std::string& key, const std::string& name, const FormatLibrary& formats) {
  if (name.empty() || name == "none") return nullptr;
  const FormatRef f = formats.get(name);
  if (f->encodes()) return f;
  throw Error(Exit::user, fmt::format("{}: format '{}' can only be decoded", key, name),
              "name a format that numbers can be written in, `lumen format list` has them");
}

void set_formats(graph::ProductType& type, const ProductSettings& settings, const FormatLibrary& formats) {
  const auto find = [&](const char* key, const std::string& own, const std::string& all) -> FormatRef {
    return encodable(fmt::format("products.{}", key), own.empty() ? all : own, formats);
  };
  using graph::ProductKind;
  const auto formats_of = [&](ProductKind kind) -> graph::OperandFormats& { return type.formats[ordinal(kind)]; };
  const auto set = [](FormatRef& to, const FormatRef& f, const std::string& own) {
    if (f || own == "none") to = f;
  };
  const ProductSettings& s = settings;
  graph::OperandFormats& forward = formats_of(ProductKind::forward);
  set(forward.activation, find("forward_activation", s.forward_activation, s.activation), s.forward_activation);
  set(forward.weight, find("forward_weight", s.forward_weight, s.weight), s.forward_weight);
  graph::OperandFormats& input = formats_of(ProductKind::input_gradient);
  set(input.weight, find("input_weight", s.input_weight, s.weight), s.input_weight);
  set(input.gradient, find("input_gradient", s.input_gradient, s.gradient), s.input_gradient);
  graph::OperandFormats& weight = formats_of(ProductKind::weight_gradient);
  set(weight.activation, find("weight_activation", s.weight_activation, s.activation), s.weight_activation);
  type.attention = find("attention", s.attention, "");
  type.attention_gradient = find("attention_gradient", s.attention_gradient, "");
  type.random = {s.activation_rounding == "stochastic", s.weight_rounding == "stochastic",
                 s.gradient_rounding == "stochastic"};
  for (const int64_t run : {s.forward_rotation, s.input_rotation, s.weight_rotation})
    if (run > 0 && (run & (run - 1)) != 0)
      throw Error(Exit::usage, fmt::format("[products]: {} is no power of two", run),
                  "runs that are rotated are 16, 32, 64, .. numbers");
  type.rotations = {s.forward_rotation, s.input_rotation, s.weight_rotation};
  const auto source = [](const std::string& name) {
    return name == "delayed"     ? FieldSource::delayed
           : name == "predicted" ? FieldSource::predicted
                                 : FieldSource::fitted;
  };
  type.sources = {source(s.activation_scale), source(s.weight_scale), source(s.gradient_scale), s.history};
  set(weight.gradient, find("weight_gradient", s.weight_gradient, s.gradient), s.weight_gradient);
}

}  // namespace lumen::model
