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
  std::string all = fmt::format("{}\n{}\n{} {} {} {} {}\n", o.source, o.strategy->name(), o.numbers.damping,
                                o.numbers.act_order, o.numbers.norm, o.numbers.iterations, model.name);
  all += fmt::format("{} {} {}\n", o.numbers.steps, o.numbers.rate, o.numbers.step_windows);
  all += fmt::format("{} {} {} {}\n", o.run.length, o.run.batch, o.run.bos, static_cast<int>(o.run.products.scalar));
  for (const Parameter& p : model.parameters) {
    const auto f = formats.find(p.name);
    all += fmt::format("{} {} {}\n", p.name, print(model.weights.at(p.name).type),
                       f == formats.end() ? "" : f->second->hash.hex());
  }
  all += hash_bytes(text.data(), text.size_bytes()).hex();
  return hash_text(all).hex();
}

}  // namespace

// The numbers of a part's weights: decoded when they are asked for, and then held.
class ByLayers::Numbers {
 public:
  Numbers(run::Engine& engine, const Model& model, Journal& journal)
      : engine_(engine), model_(model), journal_(journal) {}

  std::span<const float> of(const std::string& name) {
    const auto found = held_.find(name);
    if (found != held_.end()) return found->second;
    const std::optional<Weight> done = journal_.weight(name, model_.family->library().formats());
    return held_[name] = values_of(engine_, done ? *done : model_.weights.at(name));
  }
  void set(const std::string& name, std::vector<float> values) { held_[name] = std::move(values); }

 private:
  run::Engine& engine_;
  const Model& model_;
  Journal& journal_;
  std::map<std::string, std::vector<float>> held_;
};

ByLayers::ByLayers(run::Engine& engine, const Model& model, std::map<std::string, FormatRef> formats,
                   std::span<const TokenId> text, ByLayersOptions options)
    : engine_(engine),
      model_(model),
      formats_(std::move(formats)),
      options_(std::move(options)),
      run_(engine, model, text, options_.run),
      journal_(options_.folder, key_of(model, formats_, text, options_), options_.anew),
      rounded_(options_.folder, "rounded"),
      true_(options_.folder, "true") {
  for (const auto& [name, format] : formats_) {
    const std::optional<std::string> why = strategy_for(name).refuses(*format);
    if (why)
      throw Error(Exit::user,
                  fmt::format("'{}' cannot be rounded to '{}' by '{}': {}", name, format->name,
                              strategy_for(name).name(), *why),
                  "choose another strategy or another format");
  }
  for (size_t k = 0; k < run_.parts(); ++k)
    for (const std::string& name : run_.part(k).parameters) part_of_.emplace(name, k);
}

const Strategy& ByLayers::strategy_for(const std::string&) const {
  return *options_.strategy;
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

// A part while it is rounded.
struct ByLayers::Part {
  size_t number;
  const graph::LayerPart& part;
  Numbers before, after;
  PartRun seen;
  std::vector<std::string> mine;  // to be rounded here
  std::map<std::string, Weight> weights;
  nlohmann::json lines = nlohmann::json::array();  // of the report
  const std::function<void(const ByLayersProgress&)>& progress;
  size_t parts;

  bool is_last() const { return number + 1 == parts; }
  void tell(const std::string& doing, double share) const {
    if (progress) progress({number, parts, doing, share});
  }
  LayerRun::Progress windows(const char* doing, double from, double to, int64_t all) const {
    return [=, this](int64_t done) { tell(doing, from + (to - from) * done / all); };
  }
};

bool ByLayers::carries_truth() const {
  for (const auto& [name, f] : formats_)
    if (strategy_for(name).observes().cross || strategy_for(name).by_blocks()) return true;
  return false;
}

graph::TapKinds ByLayers::kinds_of(const std::vector<std::string>& names) const {
  graph::TapKinds kinds;
  for (const std::string& name : names) {
    const graph::TapKinds wants = strategy_for(name).observes();
    kinds.squares |= wants.squares;
    kinds.magnitudes |= wants.magnitudes;
    kinds.largest |= wants.largest;
    kinds.gram |= wants.gram;
    kinds.cross |= wants.cross;
  }
  return kinds;
}

RoundingTask ByLayers::task_of(Part& at, const std::string& name) const {
  const Parameter& p = *model_.find(name);
  RoundingTask task;
  task.name = p.gguf.empty() ? p.name : p.gguf;
  task.format = formats_.at(p.name);
  task.values = at.before.of(p.name);
  task.columns = p.shape.back().number();
  task.matrices = p.shape.size() == 3 ? p.shape[0].number() : 1;
  task.rows = std::ssize(task.values) / task.columns / task.matrices;
  for (const float v : task.values)
    if (!std::isfinite(v))
      throw Error(Exit::numeric, fmt::format("'{}' holds {}", task.name, v), "the model is broken");
  for (const TapSums& sums : at.seen.taps)
    if (std::ranges::find(sums.tap.weights, p.name) != sums.tap.weights.end()) task.reads = &sums;
  return task;
}

void ByLayers::keep(Part& at, const std::string& name, const RoundingTask& task, Rounding rounding) const {
  const double error = relative_error(rounding.values, task.values);
  const std::optional<double> output = output_error(task, rounding.values);
  at.lines.push_back({{"name", name},
                      {"strategy", strategy_for(name).name()},
                      {"error", error},
                      {"output_error", output.value_or(-1)},
                      {"remark", rounding.remark}});
  Weight& w = at.weights[name];
  w.type = {model_.find(name)->shape, {Scalar::f32, task.format}};
  w.bytes = std::move(rounding.blob);
  at.after.set(name, std::move(rounding.values));
}

// Weights of the layer that products read, where the layer hands on what they do.
bool ByLayers::goes_with_block(const Part& at, const std::string& name, const RoundingTask& task) const {
  return strategy_for(name).by_blocks() && at.part.layer >= 0 && graph::layer_of(name) == at.part.layer && task.reads &&
         hands_on(at.part);
}

void ByLayers::round_weights(Part& at) {
  std::vector<std::string> together;
  std::vector<RoundingTask> tasks;
  for (size_t i = 0; i < at.mine.size(); ++i) {
    const std::string& name = at.mine[i];
    const RoundingTask task = task_of(at, name);
    if (goes_with_block(at, name, task)) {
      together.push_back(name);
      tasks.push_back(task);
      continue;
    }
    at.tell(task.name, 0.4 + 0.3 * i / at.mine.size());
    Rounding rounding = strategy_for(name).round(engine_, task, options_.numbers);
    if (strategy_for(name).by_blocks()) rounding.remark = "lies in no layer: rounded to nearest by importance";
    keep(at, name, task, std::move(rounding));
  }
  if (together.empty()) return;
  const auto weight = [&](const std::string& name) {
    return at.weights.contains(name) ? at.after.of(name) : at.before.of(name);
  };
  BlockObjective objective(engine_, run_, at.number, together, weight, &rounded_, &true_);
  BlockRounding block = strategy_for(together.front())
                            .round_block(engine_, objective, tasks, options_.numbers, [&](int64_t done, int64_t steps) {
                              at.tell(fmt::format("learns, step {} of {}", done, steps), 0.3 + 0.55 * done / steps);
                            });
  block.weights.front().remark = fmt::format("what its layer hands on is {:.5f} off, rounded to nearest {:.5f}",
                                             std::sqrt(block.after), std::sqrt(block.before)) +
                                 (block.weights.front().remark.empty() ? "" : "; " + block.weights.front().remark);
  for (size_t i = 0; i < together.size(); ++i) keep(at, together[i], tasks[i], std::move(block.weights[i]));
}

void ByLayers::round_part(size_t k, const std::function<void(const ByLayersProgress&)>& progress) {
  Part at{
      k,        run_.part(k), Numbers(engine_, model_, journal_), Numbers(engine_, model_, journal_), {}, {}, {}, {},
      progress, run_.parts()};
  const auto weight = [](Numbers& numbers) { return [&](const std::string& name) { return numbers.of(name); }; };
  for (const std::string& name : at.part.parameters)
    if (part_of_.at(name) == k && formats_.contains(name)) at.mine.push_back(name);
  const graph::TapKinds kinds = kinds_of(at.mine);
  const auto windows = [&](const char* doing, double from, double to) {
    return at.windows(doing, from, to, run_.windows());
  };
  if (carries_truth() && !at.is_last()) {
    run_.run(k, weight(at.before), &true_, &true_, {}, windows("goes on unrounded", 0, 0.15));
    run_.keep_written(k, &true_);
  }
  const bool observes = kinds.squares || kinds.magnitudes || kinds.largest || kinds.gram;
  if (!at.mine.empty() && kinds.cross)
    at.seen = run_.compare(k, weight(at.before), &rounded_, &true_, kinds, windows("reads", 0.15, 0.3));
  else if (!at.mine.empty() && observes)
    at.seen = run_.run(k, weight(at.before), &rounded_, nullptr, kinds, windows("reads", 0.15, 0.3));
  round_weights(at);
  std::vector<Journal::Kept> kept;
  for (const std::string& name : at.mine) kept.push_back({name, &at.weights.at(name)});
  // What is not rounded is the same numbers.
  for (const std::string& name : at.part.parameters)
    if (!at.weights.contains(name)) {
      const std::span<const float> values = at.before.of(name);
      at.after.set(name, {values.begin(), values.end()});
    }
  const PartRun gone =
      run_.run(k, weight(at.after), &rounded_, at.is_last() ? nullptr : &rounded_, {}, windows("goes on", 0.85, 1));
  run_.keep_written(k, &rounded_);
  nlohmann::json report{{"tensors", std::move(at.lines)}};
  if (const auto losses = gone.results.find(kResult); losses != gone.results.end()) report["losses"] = losses->second;
  journal_.add(kept, std::move(report));
  run_.drop_read(k, &rounded_);
  run_.drop_read(k, &true_);
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
  return out;
}

Weight ByLayers::weight(const Parameter& p) {
  std::optional<Weight> w = journal_.weight(p.name, model_.family->library().formats());
  LUMEN_CHECK(w, "'{}' was not rounded", p.name);
  // The shape may have axes that files do not keep.
  w->type.shape = p.shape;
  return *w;
}

}  // namespace lumen::model
