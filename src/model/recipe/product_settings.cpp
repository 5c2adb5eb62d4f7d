#include "model/recipe/product_settings.h"

#include <algorithm>

#include "base/error.h"
#include "base/ordinal.h"

namespace lumen::model::recipe {

FormatRef encodable(const std::string& key, const std::string& name, const FormatLibrary& formats) {
  if (name.empty() || name == "none") return nullptr;
  const FormatRef f = formats.get(name);
  if (f->encodes()) return f;
  throw Error(Exit::user, fmt::format("{}: format '{}' can only be decoded", key, name),
              "name a format with an encoder, `lumen format list` shows them");
}

namespace {

// A learned scale is the forward product's: its operand must have a format, rounding to nearest and no rotation, also
// in the products of the backward pass that read the same codes.
void check_learned(const graph::ProductType& type, const ProductSettings& s) {
  const graph::OperandFormats& forward = type.formats[ordinal(graph::ProductKind::forward)];
  const auto check = [&](const char* role, const std::string& source, const FormatRef& format,
                         const std::string& rounding, int64_t rotation) {
    if (source != "learned") return;
    const auto refuse = [&](const std::string& what, const std::string& hint) {
      throw Error(Exit::usage, fmt::format("products.{}_scale = \"learned\": {}", role, what), hint);
    };
    if (!format)
      refuse("this operand of the forward pass has no format",
             fmt::format("name one with products.{}, or remove the setting", role));
    if (rounding != "nearest")
      refuse("the gradient of a scale is defined by rounding to nearest, and this operand is rounded stochastically",
             fmt::format("products.{}_rounding = \"nearest\", or a scale that is fitted", role));
    if (rotation > 0)
      refuse("a rotated operand differs between the products, but one scale is learned",
             "remove the rotations of its products, or use a fitted scale");
  };
  check("activation", s.activation_scale, forward.activation, s.activation_rounding,
        std::max(s.forward_rotation, s.weight_rotation));
  check("weight", s.weight_scale, forward.weight, s.weight_rounding, std::max(s.forward_rotation, s.input_rotation));
  check("attention", s.attention_scale, type.attention, "nearest", 0);
}

}  // namespace

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
                  "rotations have blocks of 16, 32, 64, .. numbers");
  type.rotations = {s.forward_rotation, s.input_rotation, s.weight_rotation};
  const auto source = [](const std::string& name) {
    return name == "delayed"     ? FieldSource::delayed
           : name == "predicted" ? FieldSource::predicted
           : name == "learned"   ? FieldSource::learned
                                 : FieldSource::fitted;
  };
  type.sources = {source(s.activation_scale), source(s.weight_scale), source(s.gradient_scale), s.history};
  set(weight.gradient, find("weight_gradient", s.weight_gradient, s.gradient), s.weight_gradient);
  check_learned(type, s);
}

}  // namespace lumen::model::recipe
