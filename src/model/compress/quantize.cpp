#include "model/compress/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <regex>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/file/leave.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/family/config_file.h"
#include "model/arch/low_rank_weights.h"
#include "model/calibrate/sound.h"
#include "model/compress/codebook.h"

namespace lumen::model::compress {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string element_name(const arch::Weight& w) {
  return w.is_f32() ? "f32" : w.type.element.format->name;
}

bool is_lossy(const arch::Weight& w) {
  return !w.is_f32() && !arch::is_plain(*w.type.element.format, Scalar::f16) &&
         !arch::is_plain(*w.type.element.format, Scalar::bf16);
}

std::regex compile_pattern(const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    throw usage_error("--tensor-type: '{}' is not a regular expression", text);
  }
}

// Fallbacks for a tensor whose rows the format's blocks do not divide: those the user named, in that order, or the
// mixture's fallback for the format, then that format's, and so on.
class Fallbacks {
 public:
  Fallbacks(const FormatLibrary& formats, const std::vector<std::string>& named,
            std::map<std::string, std::string> chain)
      : formats_(formats), chain_(std::move(chain)) {
    for (const std::string& name : named) named_.push_back(find_format(formats, name));
  }

  // The first whose blocks divide the rows; the remark mentions it when it is not `format`.
  FormatRef dividing(const arch::Parameter& p, const FormatRef& format, std::string* remark) const {
    const int64_t columns = p.shape.back().number();
    const auto take = [&](const FormatRef& f) {
      *remark = fmt::format("rows of {} do not divide by {}: {} instead of {}", columns, format->block, f->name,
                            format->name);
      return f;
    };
    if (columns % format->block == 0) return format;
    for (const FormatRef& f : named_)
      if (columns % f->block == 0) return take(f);
    auto next = chain_.find(format->name);
    for (size_t steps = 0; next != chain_.end() && steps < chain_.size(); ++steps) {
      const FormatRef f = formats_.get(next->second);
      if (columns % f->block == 0) return take(f);
      next = chain_.find(f->name);
    }
    throw Error(Exit::user,
                fmt::format("'{}' has rows of {}, which do not divide into blocks of {} ({})", p.gguf, columns,
                            format->block, format->name),
                "name another format with --fallback FORMAT (repeatable), or give the tensor a format with "
                "--tensor-type REGEX=FORMAT");
  }

 private:
  const FormatLibrary& formats_;
  std::vector<FormatRef> named_;
  std::map<std::string, std::string> chain_;
};

std::optional<recipe::Recipe> find_mixture(const arch::Library& library, const std::string& name) {
  const std::string wanted = lower(name);
  for (const std::string& known : library.recipe_names()) {
    const recipe::Recipe recipe = recipe::parse_recipe(library.recipe(known)->text, known);
    if (known == wanted || std::find(recipe.also.begin(), recipe.also.end(), wanted) != recipe.also.end())
      return recipe;
  }
  return std::nullopt;
}

recipe::QuantizeRule rule_for_all(const FormatRef& format) {
  recipe::QuantizeRule rule;
  rule.values = {"*"};
  rule.format = format->name;
  return rule;
}

}  // namespace

bool stays_f32(const arch::Parameter& p) {
  static const std::set<std::string> kRoles = {"norm", "bias", "frequencies", "router", "position"};
  if (kRoles.contains(p.role)) return true;
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < p.shape.size(); ++i) rows *= p.shape[i].number();
  return rows == 1;
}

FormatRef find_format(const FormatLibrary& formats, const std::string& name) {
  if (FormatRef f = formats.find(name)) return f;
  if (FormatRef f = formats.find(lower(name))) return f;
  return formats.get(name);
}

std::map<std::string, FormatRef> choose_formats(const arch::Model& model, const QuantizeOptions& options,
                                                QuantizeReport* report) {
  const arch::Library& library = model.family->library();
  const FormatLibrary& formats = library.formats();
  const std::optional<recipe::Recipe> mixture = find_mixture(library, options.target);
  std::vector<recipe::QuantizeRule> rules;
  if (mixture) {
    if (mixture->quantize.empty()) throw user_error("recipe '{}' has no [[quantize]] rules", mixture->name);
    rules = mixture->quantize;
    if (options.pure) rules.resize(1);
    if (report) report->file_type = mixture->file_type;
  } else {
    const FormatRef f = find_format(formats, options.target);  // or the Error with the nearest names
    rules.push_back(rule_for_all(f));
    if (report && f->gguf_file_type) report->file_type = *f->gguf_file_type;
  }
  const auto exists = [&](const std::string& role) {
    return std::any_of(model.parameters.begin(), model.parameters.end(),
                       [&](const arch::Parameter& p) { return p.role == role; });
  };
  const auto by_role = [&](const std::string& role, const std::string& format) {
    if (format.empty() || !exists(role)) return;
    recipe::QuantizeRule rule;
    rule.roles = {role};
    rule.format = find_format(formats, format)->name;
    rules.push_back(rule);
  };
  if (!options.pure) {
    // A tied embedding gets the output's format.
    by_role(exists("output") ? "output" : "embedding", options.output_type);
    by_role("embedding", options.embedding_type);
  }

  std::map<std::string, FormatRef> chosen;
  const FormatRef f32 = arch::format_of_scalar(formats, Scalar::f32);
  for (const auto& [name, choice] : formats_by_rule(rules, model, options.importance != nullptr)) {
    const arch::Parameter* p = model.find(name);
    if (p->is_vector() || p->frozen) continue;
    if (options.leave_output && p->role == "output") continue;
    const bool is_end = p->role == "embedding" || (p->role == "output" && options.output_type.empty());
    if ((options.linear_layers && is_end) || (options.stacked && p->shape.size() < 3)) continue;
    chosen[name] = choice.first;
    if (options.small_too || !stays_f32(*p)) continue;
    // Already rounded weights would gain nothing.
    const auto weight = model.weights.find(name);
    if (weight == model.weights.end() || !is_lossy(weight->second))
      chosen[name] = f32;
    else
      chosen.erase(name);
  }
  for (const auto& [pattern, format] : options.tensor_types) {
    const std::regex regex = compile_pattern(pattern);
    const FormatRef f = find_format(formats, format);
    // Parameters that stay f32 are matched only when no other has such a name: then they are meant.
    std::vector<const arch::Parameter*> meant, kept;
    for (const arch::Parameter& p : model.parameters) {
      if (p.is_vector() || p.frozen) continue;
      if (!std::regex_search(p.gguf, regex) && !std::regex_search(p.name, regex)) continue;
      (stays_f32(p) ? kept : meant).push_back(&p);
    }
    for (const arch::Parameter* p : meant.empty() ? kept : meant) chosen[p->name] = f;
    if (meant.empty() && kept.empty()) throw usage_error("--tensor-type: no tensor matches '{}'", pattern);
  }
  const Fallbacks fallbacks(formats, options.fallbacks,
                            mixture ? mixture->fallback : std::map<std::string, std::string>{});
  for (auto& [name, format] : chosen) {
    const arch::Parameter* p = model.find(name);
    std::string remark;
    format = fallbacks.dividing(*p, format, &remark);
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

void note_loss(QuantizedTensor& line, const Format& f, std::span<const float> before, std::span<const float> after,
               const arch::Weight& w) {
  line.loss = saturation(f, before, after, {w.bytes.data(), w.bytes.size()}, w.rows(), w.columns());
  if (line.loss.any()) line.loss_text = line.loss.text(f);
}

// The importance of a weight's columns, or of those of each stacked matrix; empty where it is not known, or the format
// does not use it. Unusable importance is noted in `report`.
std::vector<std::vector<float>> importance_of(const arch::Parameter& p, const arch::Weight& w, const Format& f,
                                              const QuantizeOptions& options, QuantizeReport& report) {
  constexpr double kFewBits = 2.6;  // below it other programs require an importance matrix
  if (!options.importance) {
    if (f.weighs() && f.bits_per_weight() < kFewBits && std::ranges::find(report.blind, f.name) == report.blind.end())
      report.blind.push_back(f.name);
    return {};
  }
  const auto found = options.importance->entries.find(p.gguf);
  if (found == options.importance->entries.end()) {
    report.without_importance.push_back(p.gguf);
    return {};
  }
  const calibrate::ImportanceEntry e =
      p.shape.size() == 3 ? found->second.unstacked(p.shape[0].number(), w.columns()) : found->second;
  const int64_t matrices = e.matrices();
  if (e.columns != w.columns() || (matrices != 1 && (p.shape.size() != 3 || matrices != p.shape[0].number())))
    throw Error(Exit::user,
                fmt::format("the importance matrix has {} matrices of {} columns for '{}', whose rows have {}",
                            matrices, e.columns, p.gguf, w.columns()),
                "it was made of another model");
  if (!f.weighs()) {
    if (std::ranges::find(report.not_weighing, f.name) == report.not_weighing.end())
      report.not_weighing.push_back(f.name);
    return {};
  }
  std::vector<std::vector<float>> out;
  int64_t unreached = 0;
  for (int64_t m = 0; m < matrices; ++m) {
    out.push_back(e.means(m));
    unreached += matrices > 1 && out.back().empty();
    if (matrices > 1) out.back().resize(e.columns, 1);  // no row reached it: equal weight for all columns
    calibrate::raise_zeros(out.back());
  }
  if (unreached > 0) report.unreached.push_back(fmt::format("{}: {} of {} matrices", p.gguf, unreached, matrices));
  if (out.front().empty()) out.clear();
  return out;
}

// Whole blocks of a weight with their importance, sampled evenly.
struct Sample {
  std::vector<float> x, importance;

  // `counts`: importance of the columns, or of those of each stacked matrix; empty: equal weights.
  void take(const Format& f, const arch::Weight& w, const std::vector<float>& values,
            const std::vector<std::vector<float>>& counts, int64_t most) {
    const int64_t of_matrix = std::ssize(values) / std::max<int64_t>(1, std::ssize(counts));
    const int64_t blocks = std::ssize(values) / f.block, taken = std::min(blocks, most);
    for (int64_t k = 0; k < taken; ++k) {
      const int64_t first = k * blocks / taken * f.block;
      x.insert(x.end(), values.begin() + first, values.begin() + first + f.block);
      for (int64_t j = first; j < first + f.block; ++j)
        importance.push_back(counts.empty() ? 1 : counts[j / of_matrix][j % w.columns()]);
    }
  }
};

}  // namespace

void train_formats(run::Engine& engine, const arch::Model& model, const QuantizeOptions& options,
                   std::map<std::string, FormatRef>& chosen, QuantizeReport& report, const arch::WeightSource& source) {
  constexpr int64_t kMostBlocks = 4096, kMostNumbers = int64_t{1} << 23;  // of a weight, of all
  std::map<std::string, std::vector<std::string>> users;
  for (const auto& [name, format] : chosen)
    if (may_train_tables(*format)) users[format->name].push_back(name);
  if (users.empty()) report.trained.emplace_back("none of the formats has tables to be trained");
  for (const auto& [name, parameters] : users) {
    const FormatRef format = chosen.at(parameters.front());
    const int64_t each = std::max<int64_t>(1, kMostNumbers / format->block / std::ssize(parameters));
    Sample sample;
    QuantizeReport unsaid;
    for (const std::string& parameter : parameters) {
      const arch::Weight w = fetched(model, *model.find(parameter), source);
      const std::vector<float> values = values_of(engine, w);
      if (const auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); }); bad != values.end())
        throw Error(Exit::numeric, fmt::format("'{}' holds {}", model.find(parameter)->gguf, *bad),
                    "no number format keeps that; find out where the model's weights broke");
      const std::vector<std::vector<float>> counts = importance_of(*model.find(parameter), w, *format, options, unsaid);
      sample.take(*format, w, values, counts, std::min(kMostBlocks, each));
    }
    if (!options.importance) sample.importance.clear();
    const TrainedTables trained = train_tables(engine, format, sample.x, sample.importance);
    report.trained.push_back(trained.text(*format));
    if (!trained.format) continue;
    for (const std::string& parameter : parameters) chosen.at(parameter) = trained.format;
    report.file_type = -1;  // no file type number describes a trained format
  }
}

Quantizer::Quantizer(const arch::Model& model, QuantizeOptions options, arch::WeightSource source)
    : model_(model), options_(std::move(options)), source_(std::move(source)) {
  QuantizeReport decided;
  chosen_ = choose_formats(model, options_, &decided);
  for (const QuantizedTensor& t : decided.tensors) remarks_[t.name] = t.remark;
  report_.file_type = decided.file_type;
  lay_out();
}

void Quantizer::train_tables(run::Engine& engine) {
  QuantizeReport trained;
  trained.file_type = report_.file_type;
  train_formats(engine, model_, options_, chosen_, trained, source_);
  report_ = {};
  report_.file_type = trained.file_type;
  report_.trained = std::move(trained.trained);
  lay_out();
}

// Sets up the result and the report's lines from the chosen formats.
void Quantizer::lay_out() {
  anew_.clear();
  lines_.clear();
  rounded_ = largest_ = 0;
  const arch::Model& model = model_;
  result_ = model;
  const graph::Config back = config_in_gguf(*model.family, model.config, model.metadata);
  for (const arch::Parameter& p : model.parameters) {
    const arch::Weight& old = model.weights.at(p.name);
    arch::Weight& w = result_.weights.at(p.name);
    QuantizedTensor line;
    line.name = p.gguf;
    line.from = element_name(old);
    line.weights = p.count();
    line.remark = remarks_.contains(p.name) ? remarks_.at(p.name) : "";
    const auto choice = chosen_.find(p.name);
    const bool plain = choice != chosen_.end() && arch::is_plain(*choice->second, Scalar::f32);
    const bool same = choice == chosen_.end() || (plain && old.is_f32()) ||
                      (old.type.element.format && old.type.element.format->hash == choice->second->hash);
    if (!same) {
      if (is_lossy(old) && !options_.allow_requantize) {
        throw Error(Exit::user, fmt::format("'{}' is already in the lossy format '{}'", p.gguf, line.from),
                    "start from an f32, f16 or bf16 file, or add --allow-requantize and accept the loss");
      }
      anew_.insert(p.name);
      w.bytes = {};
      w.type.element = {Scalar::f32, plain ? nullptr : choice->second};
      if (!plain) (void)importance_of(p, w, *choice->second, options_, report_);
      rounded_ = run::saturating_sum(rounded_, graph::byte_size(w.type));
      largest_ = std::max(largest_, graph::byte_size(w.type));
    }
    line.to = element_name(w);
    line.bits = w.bits_per_weight();
    line.bytes = std::llround(line.bits * line.weights / 8);
    if (is_omitted(model, p, back)) continue;
    if (p.role != arch::kBranchRole) report_.weights += line.weights;
    report_.bytes += line.bytes;
    lines_[p.name] = report_.tensors.size();
    report_.tensors.push_back(std::move(line));
  }
  report_.bits = 8.0 * report_.bytes / report_.weights;
}

arch::Weight Quantizer::make(PanelRounder& rounder, const arch::Parameter& p, const QuantizeProgress& progress) {
  arch::Weight source = fetched(model_, p, source_);
  if (!anew_.contains(p.name)) return source;
  const arch::Weight& planned = result_.weights.at(p.name);
  const FormatRef& to = planned.type.element.format;
  std::vector<std::vector<float>> importance;
  QuantizeReport told;  // only the report of importance_of
  if (to) importance = importance_of(p, planned, *to, options_, told);
  PanelRounder::Result made = rounder.round(source, to, importance, p.gguf);
  leave_to_file({source.bytes.data(), source.bytes.size()});
  QuantizedTensor passing;
  const auto at = lines_.find(p.name);
  QuantizedTensor& line = at == lines_.end() ? passing : report_.tensors[at->second];
  line.error = made.error;
  line.weighed = !importance.empty();
  line.weighted = made.weighted;
  line.loss = made.loss;
  if (line.loss.any()) line.loss_text = line.loss.text(*to);
  if (progress) progress(line);
  return std::move(made.weight);
}

void Quantizer::write(run::Engine& engine, const arch::Destination& to, const QuantizeProgress& progress) {
  run::require_host_memory(fmt::format("quantizing '{}'", model_.name), {{"the largest quantized weight", largest_}},
                           "choose formats of fewer bits, or a machine with more memory");
  PanelRounder rounder(engine);
  write_model(result_, to, [&](const arch::Parameter& p) { return make(rounder, p, progress); });
}

arch::Model Quantizer::in_memory(run::Engine& engine, const QuantizeProgress& progress) {
  run::require_host_memory(fmt::format("quantizing '{}'", model_.name), {{"rounded weights", rounded_}},
                           "choose formats of fewer bits, or a machine with more memory");
  PanelRounder rounder(engine);
  arch::Model out = result_;
  for (const arch::Parameter& p : model_.parameters)
    if (arch::Weight& w = out.weights.at(p.name); w.bytes.size() == 0) w = make(rounder, p, progress);
  return out;
}

arch::Model quantize(run::Engine& engine, const arch::Model& model, const QuantizeOptions& options,
                     QuantizeReport* report, const QuantizeProgress& progress) {
  Quantizer job(model, options);
  if (options.train_tables) job.train_tables(engine);
  arch::Model out = job.in_memory(engine, progress);
  if (report) *report = job.report();
  return out;
}

bool is_float_format(const Format& f) {
  return arch::is_plain(f, Scalar::f32) || arch::is_plain(f, Scalar::f16) || arch::is_plain(f, Scalar::bf16);
}

std::vector<float> values_of(run::Engine& engine, const arch::Weight& w) {
  if (w.is_f32()) return {w.f32().begin(), w.f32().end()};
  return engine.decode(w.type.element.format, w.bytes.data(), w.rows(), w.columns());
}

arch::Model dequantize(run::Engine& engine, const arch::Model& model) {
  int64_t bytes = 0;
  for (const auto& [name, w] : model.weights)
    if (!w.is_f32())
      bytes = run::saturating_sum(
          bytes, run::saturating_product(run::saturating_product(w.rows(), w.columns()), sizeof(float)));
  run::require_host_memory(fmt::format("'{}' in f32", model.name), {{"weights", bytes}});
  arch::Model out = model;
  for (auto& [name, w] : out.weights) {
    if (!w.is_f32()) w = arch::f32_weight(w.type.shape, values_of(engine, w));
  }
  return out;
}

arch::Model with_floats(run::Engine& engine, const arch::Model& model, const FormatRef& format,
                        QuantizeReport* report) {
  if (!is_float_format(*format))
    throw usage_error("'{}' is no float format; `lumen quantize` converts to other formats", format->name);
  arch::Model out = dequantize(engine, model);
  if (arch::is_plain(*format, Scalar::f32)) return out;
  for (auto& [name, w] : out.weights) {
    const arch::Parameter* p = model.find(name);
    if (!p || p->is_vector()) continue;
    const arch::Weight values = w;
    w.type.element = {Scalar::f32, format};
    w.bytes = engine.encode(format, values.f32().data(), values.rows(), values.columns());
    if (!report) continue;
    QuantizedTensor line;
    line.name = p->gguf.empty() ? name : p->gguf;
    note_loss(line, *format, values.f32(), engine.decode(format, w.bytes.data(), w.rows(), w.columns()), w);
    report->tensors.push_back(std::move(line));
  }
  return out;
}

std::vector<std::string> QuantizeReport::warnings() const {
  std::vector<std::string> out;
  Saturation all;
  for (const QuantizedTensor& t : tensors) {
    if (!t.loss.any()) continue;
    all += t.loss;
    out.push_back(fmt::format("'{}': {}", t.name, t.loss_text));
  }
  if (out.size() > 1)
    out.push_back(fmt::format("in all {} numbers of {} tensors are smaller than they were, and {} became 0",
                              all.clamped, out.size(), all.lost));
  if (!without_importance.empty())
    out.push_back(fmt::format("the importance matrix does not have: {}", fmt::join(without_importance, ", ")));
  if (!unreached.empty())
    out.push_back(fmt::format("no row of the calibration text reached some matrices, whose columns count alike: {}",
                              fmt::join(unreached, ", ")));
  if (!blind.empty())
    out.push_back(
        fmt::format("{}: with so few bits it matters much which columns of a matrix count; without an importance "
                    "matrix all count alike, and other programs refuse to write this. Make one with `lumen imatrix` "
                    "and name it with --imatrix",
                    fmt::join(blind, ", ")));
  if (!not_weighing.empty())
    out.push_back(
        fmt::format("formats without fit(x, w) do not look at importance: {}", fmt::join(not_weighing, ", ")));
  return out;
}

std::string QuantizeReport::text() const {
  const bool weighed = std::ranges::any_of(tensors, [](const QuantizedTensor& t) { return t.weighed; });
  std::string out = fmt::format("{:<32} {:>10} -> {:<12} {:>12} {:>7} {:>10}{}\n", "tensor", "from", "to", "bytes",
                                "bpw", "rel. error", weighed ? "   weighted" : "");
  std::string remarks;
  for (const QuantizedTensor& t : tensors) {
    out += fmt::format("{:<32} {:>10} -> {:<12} {:>12} {:>7.3f} {:>10}{}\n", t.name, t.from, t.to, t.bytes, t.bits,
                       t.error > 0 ? fmt::format("{:.5f}", t.error) : "-",
                       !weighed    ? ""
                       : t.weighed ? fmt::format("{:>11.5f}", t.weighted)
                                   : "          -");
    if (!t.remark.empty()) remarks += fmt::format("  {}: {}\n", t.name, t.remark);
  }
  out += fmt::format("{:<32} {:>10}    {:<12} {:>12} {:>7.3f}\n", "all", "", "", bytes, bits);
  if (!remarks.empty()) out += "fallbacks:\n" + remarks;
  for (const std::string& line : trained) out += "tables: " + line + "\n";
  return out;
}

}  // namespace lumen::model::compress
