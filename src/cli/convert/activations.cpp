#include "cli/convert/activations.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "cli/names.h"
#include "cli/output.h"
#include "model/arch/function.h"
#include "model/arch/held_formats.h"
#include "model/compress/activations/kept_by_loss.h"
#include "model/infer/session/step_plan.h"
#include "number/facts/facts.h"

namespace lumen::cli {
namespace {

void require_scale(const FormatLibrary& formats, const std::string& format, const char* flag) {
  if (tensor_scale(*named_format(formats, format)) < 0)
    throw usage_error(
        "format '{}' has no scale to calibrate: {} static is for formats with one number per tensor in addition to "
        "their codes",
        format, flag);
}

}  // namespace

void check_activations(const Shared& shared, const ActivationFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  const FormatLibrary& formats = library->formats();
  for (const std::string& name : {flags.format, flags.kept, flags.cache.keys, flags.cache.values})
    if (!name.empty() && !named_format(formats, name)->encodes())
      throw usage_error("format '{}' can only be decoded: nothing is held in it while a model runs", name);
  if (flags.kept.empty() && flags.random_seed >= 0) throw usage_error("--keep-random goes with --keep-spikes");
  if (!flags.format.empty() || flags.kept.empty()) {
    if (flags.format.empty() && flags.scales != "dynamic") throw usage_error("--activation-scales needs --activations");
  } else {
    throw usage_error("--keep-spikes needs --activations: spikes are of activations that are held in few bits");
  }
  if (flags.spike_gain > 0 && (flags.kept.empty() || flags.random_seed >= 0))
    throw usage_error("--spike-gain chooses among the projections of --keep-spikes; --keep-random does not go with it");
  if (flags.reach != "largest" && flags.scales != "static")
    throw usage_error("--activation-reach is about scales that are calibrated: add --activation-scales static");
  if (flags.scales == "static") require_scale(formats, flags.format, "--activation-scales");
  if (flags.cache_scales != "static") return;
  if (flags.cache.keys.empty() && flags.cache.values.empty())
    throw usage_error("--cache-scales needs --cache-type-k or --cache-type-v: the format that they are for");
  for (const std::string& name : {flags.cache.keys, flags.cache.values})
    if (!name.empty()) require_scale(formats, name, "--cache-scales");
}

ActivationWork::ActivationWork(run::Engine& engine, const ActivationFlags& flags, const FormatLibrary& formats)
    : engine_(engine), flags_(flags), library_(formats) {
  if (!flags.format.empty()) formats_.format = named_format(formats, flags.format);
  if (!flags.kept.empty()) formats_.kept_format = named_format(formats, flags.kept);
  formats_.has_static_scales = flags.scales == "static";
  formats_.clips = flags.reach == "error";
}

std::vector<model::compress::ActivationRange> ActivationWork::observe(const model::arch::Model& model,
                                                                      const model::arch::WeightSource& source,
                                                                      const std::vector<model::text::TokenId>& text,
                                                                      const model::calibrate::LayerRunOptions& run) {
  Progress progress;
  auto ranges = model::compress::activation_ranges(
      engine_, model, source, text, run, "",
      [&](size_t part, size_t parts) { progress.update(fmt::format("activations part {}/{}", part + 1, parts)); });
  progress.finish(fmt::format("activations: {} read by projections", ranges.size()));
  return ranges;
}

void ActivationWork::keep_spikes(const model::arch::Model& model, const model::arch::WeightSource& source,
                                 const std::vector<model::text::TokenId>& text,
                                 const model::calibrate::LayerRunOptions& run,
                                 std::map<std::string, FormatRef>* formats) {
  if (!formats_.kept_format) return;
  model::compress::SpikeRule rule{flags_.spike_ratio, {}};
  if (flags_.random_seed >= 0) rule.random_seed = flags_.random_seed;
  const std::vector<model::compress::ActivationRange> ranges = observe(model, source, text, run);
  formats_.kept = model::compress::kept_projections(ranges, rule);
  if (flags_.spike_gain > 0 && !formats_.kept.empty()) {
    const model::compress::KeptByLoss by_loss =
        model::compress::kept_by_loss(engine_, model, text, run, ranges, *formats, formats_, flags_.spike_gain);
    for (const auto& [name, kl] : by_loss.alone)
      put(fmt::format("{}: KL {:.6f} where it alone is kept{}\n", model.find(name)->gguf, kl,
                      by_loss.kept.contains(name) ? "" : "; it is not"));
    note(fmt::format("KL {:.6f} with none kept, {:.6f} with those kept, rounded to nearest", by_loss.before,
                     by_loss.after));
    formats_.kept = by_loss.kept;
  }
  for (const std::string& name : formats_.kept) {
    const model::arch::Parameter& p = *model.find(name);
    if (p.shape.back().number() % formats_.kept_format->block != 0)
      throw usage_error("'{}' cannot be kept in '{}': rows of {} do not divide into its blocks", p.gguf,
                        formats_.kept_format->name, p.shape.back().number());
    if (const auto at = formats->find(name); at != formats->end()) at->second = formats_.kept_format;
  }
  note(fmt::format("{} projections are kept in {}{}", formats_.kept.size(), formats_.kept_format->name,
                   rule.random_seed ? ", drawn at random" : ""));
}

void ActivationWork::calibrate(model::arch::Model* model, const model::arch::WeightSource& source,
                               const std::vector<model::text::TokenId>& text,
                               const model::calibrate::LayerRunOptions& run) {
  if (formats_.format) {
    ranges_ = observe(*model, source, text, run);
    encodings_ = model::compress::encodings_of(ranges_, formats_);
    model::arch::set_encoded_inputs(*model, encodings_);
    (void)model::arch::encoded_inputs(*model);  // throws where a format cannot hold the inputs of a weight
  }
  if (flags_.cache.keys.empty() && flags_.cache.values.empty()) return;
  if (flags_.cache_scales == "static") {
    calibrate_caches(model, source, text, run);
    return;
  }
  for (const auto& [key, name] : {std::pair(model::arch::kCacheKeys, flags_.cache.keys),
                                  std::pair(model::arch::kCacheValues, flags_.cache.values)})
    if (!name.empty()) model::arch::set_held_cache(*model, key, named_format(library_, name));
  // Detects errors now instead of when the model is first run.
  const model::infer::SessionOptions session = model::infer::session_options(*model, {});
  graph::Graph step = model::arch::function_of(*model, "step");
  model::infer::pad_caches(session, step);
  (void)model::infer::step_options(*model, step, session);
}

void ActivationWork::calibrate_caches(model::arch::Model* model, const model::arch::WeightSource& source,
                                      const std::vector<model::text::TokenId>& text,
                                      const model::calibrate::LayerRunOptions& run) {
  // Keys and values are observed with a cache in float and with the quantized weights.
  model::arch::Model whole = *model;
  for (const char* key : {model::arch::kCacheKeys, model::arch::kCacheValues})
    model::arch::set_held_cache(whole, key, nullptr);
  for (const model::arch::Parameter& p : whole.parameters)
    if (const auto weight = whole.weights.find(p.name); weight != whole.weights.end() && source)
      weight->second = model::arch::fetched(*model, p, source);
  Progress progress;
  caches_ = model::calibrate::cache_ranges(
      model::infer::LoadedModel(engine_, whole), text, run.length,
      [&](int64_t done, int64_t all) { progress.update(fmt::format("keys and values: window {}/{}", done, all)); });
  progress.finish(fmt::format("keys and values: those of {} layers seen", caches_.keys.size()));
  const auto set = [&](const char* key, const std::string& name, const std::vector<double>& largest) {
    if (name.empty()) return;
    const FormatRef format = named_format(library_, name);
    std::vector<double> scales;
    for (const double x : largest) scales.push_back(model::compress::static_scale(*format, x));
    model::arch::set_encoded_state(*model, key, format, scales);
  };
  set(model::arch::kCacheKeys, flags_.cache.keys, caches_.keys);
  set(model::arch::kCacheValues, flags_.cache.values, caches_.values);
  (void)model::arch::function_of(*model, "step");  // throws where layers have no cache of their own
}

void ActivationWork::tell(const model::arch::Model& model, const std::string& out,
                          model::report::CompressionReport* report) const {
  tell_caches(out, report);
  if (ranges_.empty()) return;
  std::string text =
      fmt::format("{:<32} {:<14} {:>12} {:>12} {:>10}\n", "read by", "held in", "scale", "largest", "ratio");
  report->notes.push_back(fmt::format("activations of {} weights are held in {}, {} scales; written to {}",
                                      encodings_.size(), formats_.format->name, flags_.scales, out));
  for (const model::compress::ActivationRange& r : ranges_)
    for (const std::string& name : r.weights) {
      const auto e = std::ranges::find(encodings_, name, &graph::EncodedInput::weight);
      if (e == encodings_.end()) continue;
      const std::string& gguf = model.find(name)->gguf;
      const bool kept = formats_.kept.contains(name);
      text +=
          fmt::format("{:<32} {:<14} {:>12} {:>12.5g} {:>10.4g}{}\n", gguf, e->format->name,
                      e->scale ? fmt::format("{:.5g}", *e->scale) : "fitted", r.largest, r.ratio, kept ? " kept" : "");
      report->spikes.push_back({gguf, r.ratio, kept});
    }
  put(text);
}

void ActivationWork::tell_caches(const std::string& out, model::report::CompressionReport* report) const {
  if (caches_.keys.empty()) return;
  const auto tell = [&](const char* what, const std::string& format, const std::vector<double>& largest) {
    if (format.empty()) return;
    report->notes.push_back(
        fmt::format("{} of {} layers are held in {}, static scales; written to {}", what, largest.size(), format, out));
    put(fmt::format("{} in {}, the largest of each layer: {:.5g}\n", what, format, fmt::join(largest, ", ")));
  };
  tell("keys", flags_.cache.keys, caches_.keys);
  tell("values", flags_.cache.values, caches_.values);
}

}  // namespace lumen::cli
