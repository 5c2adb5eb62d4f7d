#include "model/arch/checkpoint/packed/scheme.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/structured/toml.h"
#include "model/file/sections.h"

namespace lumen::model::arch {
namespace {

using nlohmann::json;

Scheme::Field field_of(const Toml& f) {
  Scheme::Field out;
  out.field = f.text("field");
  out.tensor = f.text("tensor");
  out.also = f.text("also", "");
  out.packed = f.text("packed", "");
  out.map = f.text("map", "");
  out.scale = f.text("scale", "");
  out.offset = f.text("offset", "");
  out.steps = f.text("steps", "");
  out.type = f.text("type", "");
  out.axes = f.texts("axes");
  out.order = f.integers("order");
  out.add = f.integer("add", 0);
  out.per = f.integer("per", 0);
  out.last = f.integer("last", 0);
  out.times = f.number("times", 0);
  out.whole = f.boolean("whole", false);
  out.scalar = f.boolean("scalar", false);
  out.constant = f.boolean("constant", false);
  return out;
}

Scheme scheme_of(const Toml& s) {
  Scheme out;
  out.name = s.text("name");
  out.format = s.text("format");
  out.weight = s.text("weight", "weight");
  out.bits = s.text("bits");
  out.when = s.texts("when");
  out.ignore = s.texts("ignore");
  out.trivial = s.texts("trivial");
  out.unturned = s.boolean("unturned", false);
  out.float_experts = s.boolean("float_experts", false);
  out.for_inputs = s.boolean("for_inputs", false);
  for (const Toml& f : s.tables("field")) out.fields.push_back(field_of(f));
  out.outputs = s.texts("output");
  out.config = s.text("config", "");
  out.left = s.text("left", "");
  out.pattern = s.text("pattern", "");
  out.modules = s.texts("modules");
  out.sizes = s.integers("sizes");
  for (const Toml& w : s.tables("word"))
    out.words.push_back({w.text("word"), w.text("block", ""), w.text("row", ""), w.text("tile", ""),
                         w.text("tensor", ""), w.text("fixed", "")});
  for (const Toml& e : s.tables("extra"))
    out.extras.push_back({e.text("tensor"), e.text("type"), e.text("holds"), e.text("text", ""), e.numbers("values"),
                          e.boolean("scalar", false)});
  s.refuse_unknown();
  return out;
}

bool holds_condition(const json& config, const std::string& condition) {
  const size_t at = condition.find('=');
  LUMEN_CHECK(at != std::string::npos && at > 0, "condition '{}'", condition);
  const bool unequal = condition[at - 1] == '!';
  return (word_of(find_in(config, condition.substr(0, unequal ? at - 1 : at))) == condition.substr(at + 1)) != unequal;
}

}  // namespace

std::vector<Toml> checkpoint_tables(std::string_view kind) {
  std::vector<Toml> out;
  for (const embedded::File& file : embedded::models())
    if (file.path == "models/checkpoints.toml")
      out = Toml::parse(std::string(file.text), "<embedded checkpoints.toml>").tables(kind);
  LUMEN_CHECK(!out.empty(), "checkpoints.toml has no [[{}]]", kind);
  return out;
}

const std::vector<Scheme>& schemes() {
  static const std::vector<Scheme> all = [] {
    std::vector<Scheme> out;
    for (const Toml& s : checkpoint_tables("scheme")) out.push_back(scheme_of(s));
    return out;
  }();
  return all;
}

bool Scheme::is_written_by(const std::string& output) const {
  return std::ranges::find(outputs, output) != outputs.end();
}

const json* find_in(const json& object, const std::string& path) {
  if (path.empty()) return &object;
  if (!object.is_object()) return nullptr;
  const size_t dot = path.find('.');
  const std::string first = path.substr(0, dot), rest = dot == std::string::npos ? "" : path.substr(dot + 1);
  if (first == "*") return object.size() == 1 ? find_in(*object.begin(), rest) : nullptr;
  const auto at = object.find(first);
  return at == object.end() || at->is_null() ? nullptr : find_in(*at, rest);
}

std::string word_of(const json* value) {
  if (!value) return "";
  return value->is_string() ? value->get<std::string>() : value->dump(-1, ' ', false, json::error_handler_t::replace);
}

bool holds_conditions(const json& quantization_config, const std::vector<std::string>& conditions) {
  return std::all_of(conditions.begin(), conditions.end(),
                     [&](const auto& c) { return holds_condition(quantization_config, c); });
}

bool describes(const Scheme& scheme, const json& quantization_config) {
  return holds_conditions(quantization_config, scheme.when);
}

std::string filled(std::string text, const std::string& name, const std::string& value) {
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size()))
    text.replace(at, name.size(), value);
  return text;
}

std::string table_text(std::span<const float> values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string digits = fmt::format("{}", values[i]);
    out += (i ? ", " : "") + digits + (digits.find_first_of(".e") == std::string::npos ? ".0" : "");
  }
  return out + "]";
}

FormatRef format_of_scheme(const FormatLibrary& formats, const std::string& file, const std::string& text) {
  const size_t begin = text.find("format ");
  if (begin == std::string::npos) return formats.get(text);
  const std::string name = text.substr(begin + 7, text.find_first_of(" :", begin + 7) - begin - 7);
  return file::FormatsOfFile(formats, file).get(name, text);
}

}  // namespace lumen::model::arch
