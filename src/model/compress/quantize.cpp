#include "model/compress/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <regex>

#include "base/check.h"
#include "base/error.h"
#include "model/arch/config_file.h"
#include "model/arch/write.h"

namespace lumen::model {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string element_name(const Weight& w) {
  return w.is_f32() ? "f32" : w.type.element.format->name;
}

bool is_lossy(const Weight& w) {
  return !w.is_f32() && !is_plain(*w.type.element.format, Scalar::f16) &&
         !is_plain(*w.type.element.format, Scalar::bf16);
}

double relative_error(std::span<const float> x, std::span<const float> y) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - y[i];
    difference += d * d;
    size += static_cast<double>(x[i]) * x[i];
  }
  return size > 0 ? std::sqrt(difference / size) : 0;
}

std::regex compile_pattern(const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    throw usage_error("--tensor-type: '{}' is not a regular expression", text);
  }
}

// The first of `format` and the fallbacks whose blocks divide the rows; the remark tells when it is not `format`.
FormatRef dividing_format(const Parameter& p, const FormatRef& format, const std::vector<FormatRef>& fallbacks,
                          std::string* remark) {
  const int64_t columns = p.shape.back().number();
  if (columns % format->block == 0) return format;
  for (const FormatRef& f : fallbacks) {
    if (columns % f->block != 0) continue;
    *remark =
        fmt::format("rows of {} do not divide by {}: {} instead of {}", columns, format->block, f->name, format->name);
    return f;
  }
  throw Error(Exit::user,
              fmt::format("'{}' has rows of {}, which do not divide into blocks of {} ({})", p.gguf, columns,
                          format->block, format->name),
              "name what to take instead with --fallback FORMAT (repeatable), or give the tensor a format with "
              "--tensor-type REGEX=FORMAT");
}

}  // namespace

FormatRef find_format(const FormatLibrary& formats, const std::string& name) {
  if (FormatRef f = formats.find(name)) return f;
  if (FormatRef f = formats.find(lower(name))) return f;
  return formats.get(name);
}

std::map<std::string, FormatRef> choose_formats(const Model& model, const QuantizeOptions& options,
                                                QuantizeReport* report) {
  const Library& library = model.family->library();
  const FormatLibrary& formats = library.formats();
  std::vector<QuantizeRule> rules;
  if (formats.find(options.target) || formats.find(lower(options.target))) {
    const FormatRef f = find_format(formats, options.target);
    QuantizeRule rule;
    rule.values = {"*"};
    rule.format = f->name;
    rules.push_back(rule);
    if (report && f->gguf_file_type) report->file_type = *f->gguf_file_type;
  } else if (const auto text = library.recipe(options.target)) {
    const Recipe recipe = parse_recipe(text->text, text->name);
    if (recipe.quantize.empty()) throw user_error("recipe '{}' has no [[quantize]] rules", text->name);
    rules = recipe.quantize;
    if (options.pure) rules.resize(1);
    if (report) report->file_type = static_cast<int>(recipe.file_type);
  } else {
    (void)formats.get(options.target);  // the Error with the nearest names
  }
  if (!options.pure) {
    const auto by_role = [&](const std::string& role, const std::string& format) {
      if (format.empty()) return;
      QuantizeRule rule;
      rule.roles = {role};
      rule.format = find_format(formats, format)->name;
      const bool exists = std::any_of(model.parameters.begin(), model.parameters.end(),
                                      [&](const Parameter& p) { return p.role == role; });
      if (exists) rules.push_back(rule);
    };
    by_role("output", options.output_type);
    by_role("embedding", options.embedding_type);
  }
  std::vector<FormatRef> fallbacks;
  for (const std::string& name : options.fallbacks) fallbacks.push_back(find_format(formats, name));

  std::map<std::string, FormatRef> chosen;
  for (const auto& [name, choice] : formats_by_rule(rules, model)) {
    const Parameter* p = model.find(name);
    if (p->shape.size() < 2 || p->frozen) continue;
    if (options.leave_output && p->role == "output") continue;
    chosen[name] = choice.first;
  }
  for (const auto& [pattern, format] : options.tensor_types) {
    const std::regex regex = compile_pattern(pattern);
    const FormatRef f = find_format(formats, format);
    bool used = false;
    for (const Parameter& p : model.parameters) {
      if (p.shape.size() < 2 || p.frozen) continue;
      if (!std::regex_search(p.gguf, regex) && !std::regex_search(p.name, regex)) continue;
      chosen[p.name] = f;
      used = true;
    }
    if (!used) throw usage_error("--tensor-type: no tensor matches '{}'", pattern);
  }
  for (auto& [name, format] : chosen) {
    const Parameter* p = model.find(name);
    std::string remark;
    format = dividing_format(*p, format, fallbacks, &remark);
    if (!format->encodes()) {
      throw user_error("format '{}' can be read but not written: it has no encoder", format->name);
    }
    if (report && !remark.empty()) {
      QuantizedTensor t;
      t.name = name;
      t.remark = remark;
      report->tensors.push_back(t);  // quantize() merges remarks into the full lines
    }
  }
  return chosen;
}

namespace {

// Encoders would make some code of these too, and the loss would pass unseen.
void require_finite(std::span<const float> values, const Weight& w, const std::string& name) {
  const auto bad = std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  if (bad == values.end()) return;
  const int64_t at = bad - values.begin();
  throw Error(Exit::numeric,
              fmt::format("'{}' holds {} in row {}, column {}", name, *bad, at / w.columns(), at % w.columns()),
              "no number format keeps that; find out where the model's weights broke");
}

}  // namespace

std::vector<float> values_of(run::Engine& engine, const Weight& w) {
  if (w.is_f32()) return {w.f32().begin(), w.f32().end()};
  return engine.decode(w.type.element.format, w.bytes.data(), w.rows(), w.columns());
}

Model quantize(run::Engine& engine, const Model& model, const QuantizeOptions& options, QuantizeReport* report,
               const std::function<void(const QuantizedTensor&)>& progress) {
  QuantizeReport local;
  const std::map<std::string, FormatRef> chosen = choose_formats(model, options, &local);
  std::map<std::string, std::string> remarks;
  for (const QuantizedTensor& t : local.tensors) remarks[t.name] = t.remark;
  local.tensors.clear();

  Model out = model;
  const graph::Config back = config_in_gguf(*model.family, model.config, model.metadata);
  for (const Parameter& p : model.parameters) {
    const Weight& old = model.weights.at(p.name);
    Weight& w = out.weights.at(p.name);
    QuantizedTensor line;
    line.name = p.gguf;
    line.from = element_name(old);
    line.weights = p.count();
    line.remark = remarks.contains(p.name) ? remarks.at(p.name) : "";
    const auto choice = chosen.find(p.name);
    const bool same =
        choice == chosen.end() || (old.type.element.format && old.type.element.format->hash == choice->second->hash);
    if (!same) {
      if (is_lossy(old) && !options.allow_requantize) {
        throw Error(Exit::user, fmt::format("'{}' is already in the lossy format '{}'", p.gguf, line.from),
                    "start from an f32, f16 or bf16 file, or add --allow-requantize and accept the loss");
      }
      const std::vector<float> values = values_of(engine, old);
      require_finite(values, old, p.gguf);
      const FormatRef& f = choice->second;
      if (is_plain(*f, Scalar::f32)) {
        w = f32_weight(p.shape, values);
      } else {
        w.type.element = {Scalar::f32, f};
        w.bytes = engine.encode(f, values.data(), w.rows(), w.columns());
        line.error = relative_error(values, engine.decode(f, w.bytes.data(), w.rows(), w.columns()));
      }
    }
    line.to = element_name(w);
    line.bits = w.bits_per_weight();
    line.bytes = std::llround(line.bits * static_cast<double>(line.weights) / 8);
    if (is_omitted(model, p, back)) continue;
    if (progress) progress(line);
    local.weights += line.weights;
    local.bytes += line.bytes;
    local.tensors.push_back(std::move(line));
  }
  local.bits = 8.0 * static_cast<double>(local.bytes) / static_cast<double>(local.weights);
  if (report) *report = std::move(local);
  return out;
}

Model dequantize(run::Engine& engine, const Model& model) {
  Model out = model;
  for (auto& [name, w] : out.weights) {
    if (!w.is_f32()) w = f32_weight(w.type.shape, values_of(engine, w));
  }
  return out;
}

Model with_floats(run::Engine& engine, const Model& model, const FormatRef& format) {
  const bool is_float =
      is_plain(*format, Scalar::f32) || is_plain(*format, Scalar::f16) || is_plain(*format, Scalar::bf16);
  if (!is_float) throw usage_error("'{}' is no float format; `lumen quantize` rounds to others", format->name);
  Model out = dequantize(engine, model);
  if (is_plain(*format, Scalar::f32)) return out;
  for (auto& [name, w] : out.weights) {
    if (w.type.shape.size() < 2) continue;
    const Weight values = w;
    w.type.element = {Scalar::f32, format};
    w.bytes = engine.encode(format, values.f32().data(), values.rows(), values.columns());
  }
  return out;
}

std::string QuantizeReport::text() const {
  std::string out = fmt::format("{:<32} {:>10} -> {:<12} {:>12} {:>7} {:>10}\n", "tensor", "from", "to", "bytes", "bpw",
                                "rel. error");
  std::string remarks;
  for (const QuantizedTensor& t : tensors) {
    out += fmt::format("{:<32} {:>10} -> {:<12} {:>12} {:>7.3f} {:>10}\n", t.name, t.from, t.to, t.bytes, t.bits,
                       t.error > 0 ? fmt::format("{:.5f}", t.error) : "-");
    if (!t.remark.empty()) remarks += fmt::format("  {}: {}\n", t.name, t.remark);
  }
  out += fmt::format("{:<32} {:>10}    {:<12} {:>12} {:>7.3f}\n", "all", "", "", bytes, bits);
  if (!remarks.empty()) out += "fallbacks:\n" + remarks;
  return out;
}

}  // namespace lumen::model
