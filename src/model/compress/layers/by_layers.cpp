#include "model/compress/layers/by_layers.h"

#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/text.h"
#include "model/compress/quantize.h"
#include "model/compress/relative_error.h"

namespace lumen::model {
namespace {

std::string key_of(const Model& model, const std::map<std::string, FormatRef>& formats, std::span<const TokenId> text,
                   const ByLayersOptions& o) {
  std::string all =
      fmt::format("{}\n{}\n{} {} {} {} {} {}\n", o.source, o.method.text(), o.numbers.damping, o.numbers.act_order,
                  o.numbers.norm, o.numbers.iterations, o.numbers.smoothing_strength, model.name);
  all += fmt::format("{} {} {} {}\n", o.run.length, o.run.batch, o.run.bos, static_cast<int>(o.run.products.scalar));
  for (const Parameter& p : model.parameters) {
    const auto f = formats.find(p.name);
    all += fmt::format("{} {} {}\n", p.name, print(model.weights.at(p.name).type),
                       f == formats.end() ? "" : f->second->hash.hex());
  }
  all += hash_bytes(text.data(), text.size_bytes()).hex();
  return hash_text(all).hex();
}

// The numbers of a part's weights: decoded when they are asked for, and then held.
class Numbers {
 public:
  Numbers(run::Engine& engine, const Model& model, const std::map<std::string, FormatRef>& rounded, Journal& journal)
      : engine_(engine), model_(model), rounded_(rounded), journal_(journal) {}

  std::span<const float> of(const std::string& name) {
    const auto found = held_.find(name);
    if (found != held_.end()) return found->second;
    const auto format = rounded_.find(name);
    const std::optional<Weight> done =
        journal_.weight(name, model_.family->library().formats(), format == rounded_.end() ? nullptr : format->second);
    return held_[name] = values_of(engine_, done ? *done : model_.weights.at(name));
  }
  void set(const std::string& name, std::vector<float> values) { held_[name] = std::move(values); }

 private:
  run::Engine& engine_;
  const Model& model_;
  const std::map<std::string, FormatRef>& rounded_;
  Journal& journal_;
  std::map<std::string, std::vector<float>> held_;
};

}  // namespace

ByLayers::ByLayers(run::Engine& engine, const Model& model, std::map<std::string, FormatRef> formats,
                   std::span<const TokenId> text, ByLayersOptions options)
    : engine_(engine),
      model_(model),
      formats_(std::move(formats)),
      options_(std::move(options)),
      run_(engine, model, text, options_.run),
      journal_(options_.folder, key_of(model, formats_, text, options_), options_.anew),
      rounded_(options_.folder, "rounded"),
      true_(options_.folder, "true"),
      rounder_(options_.method.strategy->rounder(engine, options_.numbers)) {
  for (const auto& [name, format] : formats_) {
    const Strategy& strategy = *options_.method.strategy;
    if (const std::optional<std::string> why = strategy.refuses(*format, options_.numbers))
      throw Error(Exit::user,
                  fmt::format("'{}' cannot be rounded to '{}' by '{}': {}", name, format->name, strategy.name(), *why),
                  "choose another strategy or another format");
  }
  if (!options_.method.preparations.empty()) sites_ = graph::scale_sites(rewrite_graph(model));
  for (size_t k = 0; k < run_.parts(); ++k)
    for (const std::string& name : run_.part(k).parameters) part_of_.emplace(name, k);
}

bool ByLayers::run(const std::function<void(const ByLayersProgress&)>& progress, const std::function<bool()>& stop) {
  for (size_t k = journal_.done(); k < run_.parts(); ++k) {
    round_part(k, progress);
    if (stop && k + 1 < run_.parts() && stop()) return false;
  }
  const nlohmann::json& last = journal_.report(run_.parts() - 1);
  if (last.contains("losses")) losses_ = last["losses"].get<std::vector<float>>();
  return true;
}

void ByLayers::round_part(size_t k, const std::function<void(const ByLayersProgress&)>& progress) {
  const graph::LayerPart& part = run_.part(k);
  Numbers before(engine_, model_, formats_, journal_), after(engine_, model_, formats_, journal_);
  const auto weight = [](Numbers& numbers) { return [&](const std::string& name) { return numbers.of(name); }; };
  std::vector<std::string> mine;  // to be rounded here
  for (const std::string& name : part.parameters)
    if (part_of_.at(name) == k && formats_.contains(name)) mine.push_back(name);
  const graph::TapKinds kinds = options_.method.observes();
  const auto tell = [&](const std::string& doing, double share) {
    if (progress) progress({k, run_.parts(), doing, share});
  };
  const auto windows = [&](const char* doing, double from, double to) {
    return [&, doing, from, to](int64_t done) { tell(doing, from + (to - from) * done / run_.windows()); };
  };
  const bool compares = kinds.cross, observes = kinds.squares || kinds.magnitudes || kinds.largest || kinds.gram;
  PartRun seen;
  if (!mine.empty() && compares)
    seen = run_.compare(k, weight(before), &rounded_, &true_, kinds, windows("reads", 0, 0.4));
  else if (!mine.empty() && observes)
    seen = run_.run(k, weight(before), &rounded_, nullptr, kinds, windows("reads", 0, 0.4));

  rounder_->begin_part();
  const PartState state = prepared(k, std::move(seen.taps), mine, weight(before));
  for (const std::string& name : state.changed) {
    const std::span<const float> values = state.model.weights.at(name).f32();
    after.set(name, {values.begin(), values.end()});
  }
  std::vector<Weight> weights(mine.size());
  std::vector<Journal::Kept> kept;
  nlohmann::json lines = nlohmann::json::array();
  for (size_t i = 0; i < mine.size(); ++i) {
    const Parameter& p = *model_.find(mine[i]);
    tell(p.gguf.empty() ? p.name : p.gguf, 0.4 + 0.3 * i / mine.size());
    RoundingTask task;
    task.name = p.gguf.empty() ? p.name : p.gguf;
    task.format = formats_.at(p.name);
    task.values = state.changed.contains(p.name) ? state.model.weights.at(p.name).f32() : before.of(p.name);
    task.columns = p.shape.back().number();
    task.matrices = p.shape.size() == 3 ? p.shape[0].number() : 1;
    task.rows = std::ssize(task.values) / task.columns / task.matrices;
    for (const float v : task.values)
      if (!std::isfinite(v))
        throw Error(Exit::numeric, fmt::format("'{}' holds {}", task.name, v), "the model is broken");
    task.reads = reads_of(state.reads, p.name);
    Rounding rounding = rounder_->round(task);
    weights[i].type = {p.shape, {Scalar::f32, task.format}};
    const double error = relative_error(rounding.values, task.values);
    const std::optional<double> output = output_error(task, rounding.values);
    if (const auto more = state.remarks.find(p.name); more != state.remarks.end())
      rounding.remark = more->second + (rounding.remark.empty() ? "" : "; ") + rounding.remark;
    lines.push_back({{"name", p.name},
                     {"strategy", options_.method.text()},
                     {"error", error},
                     {"output_error", output.value_or(-1)},
                     {"remark", rounding.remark}});
    weights[i].bytes = std::move(rounding.blob);
    kept.push_back({p.name, &weights[i]});
    after.set(p.name, std::move(rounding.values));
  }
  const bool last = k + 1 == run_.parts();
  // What is neither rounded nor changed is the same numbers.
  nlohmann::json changed = nlohmann::json::array();
  for (const std::string& name : part.parameters)
    if (std::ranges::find(mine, name) == mine.end()) {
      if (state.changed.contains(name)) {
        kept.push_back({name, &state.model.weights.at(name)});
        changed.push_back(name);
        continue;
      }
      const std::span<const float> values = before.of(name);
      after.set(name, {values.begin(), values.end()});
    }
  if (compares && !last) {
    run_.run(k, weight(before), &true_, &true_, {}, windows("goes on", 0.7, 0.85));
    run_.keep_written(k, &true_);
  }
  const PartRun gone =
      run_.run(k, weight(after), &rounded_, last ? nullptr : &rounded_, {}, windows("goes on", 0.85, 1));
  run_.keep_written(k, &rounded_);
  nlohmann::json report{{"tensors", std::move(lines)}, {"changed", std::move(changed)}};
  if (const auto losses = gone.results.find(kResult); losses != gone.results.end()) report["losses"] = losses->second;
  journal_.add(kept, std::move(report));
  run_.drop_read(k, &rounded_);
  run_.drop_read(k, &true_);
}

PartState ByLayers::prepared(size_t k, std::vector<TapSums> reads, const std::vector<std::string>& mine,
                             const std::function<std::span<const float>(const std::string&)>& weight) {
  PartState out;
  out.reads = std::move(reads);
  if (mine.empty() || options_.method.preparations.empty()) return out;
  out.model = model_;
  for (const std::string& name : mine) out.formats.emplace(name, formats_.at(name));
  for (const graph::ScaleSite& site : sites_) {
    const bool here = std::ranges::all_of(
        site.changes, [&](const graph::ScaledParameter& c) { return part_of_.at(c.parameter) == k; });
    if (!here || site.free == 0) continue;
    out.sites.push_back(site);
    for (const graph::ScaledParameter& c : site.changes) {
      Weight& w = out.model.weights.at(c.parameter);
      w = f32_weight(w.type.shape, weight(c.parameter));
    }
  }
  for (const Preparation* p : options_.method.preparations) p->prepare(engine_, out, options_.numbers);
  return out;
}

std::vector<RoundedTensor> ByLayers::report() const {
  std::vector<RoundedTensor> out;
  for (size_t k = 0; k < journal_.done(); ++k)
    for (const nlohmann::json& line : journal_.report(k)["tensors"]) {
      const Parameter& p = *model_.find(line["name"]);
      out.push_back({p.gguf.empty() ? p.name : p.gguf, formats_.at(p.name)->name, line["strategy"], line["remark"],
                     line["error"], line["output_error"]});
    }
  return out;
}

Model ByLayers::outline() const {
  Model out = model_;
  for (const auto& [name, format] : formats_) {
    Weight& w = out.weights.at(name);
    w.type.element = {Scalar::f32, format};
    w.bytes = {};
  }
  for (size_t k = 0; k < journal_.done(); ++k)
    for (const nlohmann::json& name : journal_.report(k)["changed"]) {
      Weight& w = out.weights.at(name.get<std::string>());
      w.type.element = {Scalar::f32, nullptr};
      w.bytes = {};
    }
  return out;
}

Weight ByLayers::weight(const Parameter& p) {
  const auto format = formats_.find(p.name);
  std::optional<Weight> w =
      journal_.weight(p.name, model_.family->library().formats(), format == formats_.end() ? nullptr : format->second);
  LUMEN_CHECK(w, "'{}' was not rounded", p.name);
  // The shape may have axes that files do not keep.
  w->type.shape = p.shape;
  return *w;
}

}  // namespace lumen::model
