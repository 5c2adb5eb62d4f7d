#include "model/arch/checkpoint/packed/held.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "base/structured/toml.h"
#include "model/arch/checkpoint/packed/same_numbers.h"
#include "model/arch/checkpoint/packed/scheme.h"
#include "number/codec/codec.h"
#include "number/facts/facts.h"

namespace lumen::model::arch {
namespace {

using nlohmann::json;

constexpr int64_t kMostGroup = 1 << 16;

std::vector<HeldRule> parsed_rules(std::string_view kind) {
  std::vector<HeldRule> out;
  for (const Toml& t : checkpoint_tables(kind)) {
    HeldRule& r = out.emplace_back();
    r.when = t.texts("when");
    r.format = t.text("format", "");
    r.told = t.text("told", "");
    LUMEN_CHECK(r.format.empty() != r.told.empty(), "a rule of [[{}]] has a format, or tells why not", kind);
    r.group = t.text("group", "");
    r.scale = t.text("scale", "");
    r.also = t.text("also", "");
    r.zero = t.text("zero", "");
    r.values = t.text("values", "");
    r.outputs = t.texts("output");
    r.config = t.text("config", "");
    r.scalar = t.boolean("scalar", false);
    t.refuse_unknown();
  }
  return out;
}

// The single number in a tensor.
double number_in(const file::StoredTensor& t, const std::string& file) {
  const auto wrong = [&](const std::string& what) {
    return Error(Exit::user, fmt::format("{}: tensor '{}' {}", file, t.name, what),
                 "the tensors and quantization_config disagree");
  };
  int64_t count = 1;
  for (const int64_t d : t.shape) count *= d;
  if (count != 1) throw wrong(fmt::format("has {} numbers, where one is expected", count));
  const auto read = [&](auto value) -> double {
    if (t.data.size() < sizeof value) throw wrong("is too short");
    std::memcpy(&value, t.data.data(), sizeof value);
    return value;
  };
  if (t.element.format) {
    if (t.element.format->block != 1) throw wrong("does not hold a plain number");
    return decode(*t.element.format, t.data, 1, 1).front();
  }
  switch (t.element.scalar) {
    case Scalar::f32:
      return read(float{});
    case Scalar::i8:
      return read(int8_t{});
    case Scalar::u8:
      return read(uint8_t{});
    case Scalar::i32:
      return read(int32_t{});
    default:
      throw wrong("does not hold a plain number");
  }
}

// The format's columns per block.
int64_t group_of(const Format& f) {
  return f.block;
}

std::string with_group(const HeldRule& rule, int64_t group) {
  return filled(rule.format, "{group}", std::to_string(group));
}

}  // namespace

const std::vector<HeldRule>& activation_rules() {
  static const std::vector<HeldRule> all = parsed_rules("activation");
  return all;
}

const std::vector<HeldRule>& cache_rules() {
  static const std::vector<HeldRule> all = parsed_rules("cache");
  return all;
}

const HeldRule* held_rule(const std::vector<HeldRule>& rules, const json& config, const std::string& path,
                          const std::string& file) {
  const json* value = path.empty() ? nullptr : find_in(config, path);
  if (!value) return nullptr;
  for (const HeldRule& r : rules) {
    if (!holds_conditions(config, r.when)) continue;
    if (!r.format.empty()) return &r;
    note(fmt::format("{}: {}", file, r.told));
    return nullptr;
  }
  throw Error(Exit::user,
              fmt::format("{}: quantization_config: \"{}\" is {}, which is not supported", file, path,
                          value->dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 240)),
              "models/checkpoints.toml lists the supported settings; null there computes with floats");
}

HeldFormat read_held(const HeldRule& rule, const json& config, const file::TensorFile& tensors,
                     const std::string& prefix, const std::string& scale, const FormatLibrary& formats,
                     const std::string& file, std::set<std::string>& used) {
  const auto number = [&](const std::string& name) {
    const file::StoredTensor* t = tensors.find(prefix + name);
    if (!t)
      throw Error(Exit::user, fmt::format("{}: tensor '{}' is missing", file, prefix + name),
                  "quantization_config requires scales in the file");
    used.insert(t->name);
    return number_in(*t, file);
  };
  std::string text = rule.format;
  if (!rule.group.empty()) {
    const json* group = find_in(config, rule.group);
    if (!group || !group->is_number_integer() || *group < 1 || *group > kMostGroup)
      throw user_error("{}: quantization_config: \"{}\" is not a group size", file, rule.group);
    text = with_group(rule, group->get<int64_t>());
  }
  if (!rule.zero.empty()) {
    const double zero = number(rule.zero);
    if (zero != std::floor(zero) || std::abs(zero) > 128)
      throw user_error("{}: tensor '{}' holds {}, which is not an 8-bit zero point", file, prefix + rule.zero, zero);
    const int whole = zero;
    text = filled(std::move(text), "{zero}", std::to_string(whole));
    text = filled(std::move(text), "{zero+128}", std::to_string(whole + 128));
  }
  HeldFormat out{format_of_scheme(formats, file, text), {}};
  if (!scale.empty()) {
    const bool other = scale == rule.scale && !rule.also.empty() && !tensors.find(prefix + scale);
    out.scale = number(other ? rule.also : scale);
    if (!std::isfinite(*out.scale) || *out.scale <= 0)
      throw user_error("{}: tensor '{}' holds {}, which is not a scale", file, prefix + scale, *out.scale);
  }
  return out;
}

const HeldRule* rule_of_format(const std::vector<HeldRule>& rules, const std::string& output,
                               const FormatLibrary& formats, const HeldFormat& held) {
  for (const HeldRule& r : rules) {
    if (std::ranges::find(r.outputs, output) == r.outputs.end() || r.scale.empty() == held.scale.has_value()) continue;
    FormatRef f;
    try {
      f = format_of_scheme(formats, "models/checkpoints.toml", with_group(r, group_of(*held.format)));
    } catch (const Error&) {
      continue;  // no format with blocks of that size
    }
    // Checked in both directions: one scale per tensor can be stored per row, but it is not fitted like that.
    if (same_numbers(*held.format, *f) && same_numbers(*f, *held.format)) return &r;
  }
  return nullptr;
}

json held_config(const HeldRule& rule, const Format& format) {
  return parse_json(filled(rule.config, "{group}", std::to_string(group_of(format))), "models/checkpoints.toml");
}

file::TensorSpec scale_spec(const HeldRule& rule, const std::string& name) {
  file::TensorSpec spec;
  spec.name = name;
  if (!rule.scalar) spec.shape = {1};
  spec.element = {Scalar::f32, nullptr};
  return spec;
}

}  // namespace lumen::model::arch
