#include "model/compress/layers/by_layers.h"

#include <cmath>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "graph/ir/text.h"
#include "model/arch/low_rank_weights.h"
#include "model/arch/split_weights.h"
#include "model/calibrate/sound.h"
#include "model/compress/quantize.h"
#include "model/compress/relative_error.h"
#include "number/facts/facts.h"
#include "run/engine/feedback/first_not_finite.h"

namespace lumen::model::compress {
namespace {

constexpr const char *kRounded = "rounded", *kTrue = "true";  // sets of carried values

std::string key_of(const arch::Model& model, const std::map<std::string, FormatRef>& formats,
                   std::span<const text::TokenId> text, const ByLayersOptions& o) {
  std::string all = fmt::format("{}\n{}\n{}\n{} {} {} {} {} {}\n", o.identity ? o.identity->sampled() : "", o.source,
                                o.method.text(), o.numbers.damping, o.numbers.act_order, o.numbers.norm,
                                o.numbers.iterations, o.numbers.smoothing_strength, model.name);
  all += fmt::format("{} {} {}\n", o.numbers.steps, o.numbers.rate, o.numbers.step_windows);
  if (o.branch.are_wanted())
    all += fmt::format("branches {} {} {}\n", o.branch.rank, name_of(o.branch.method),
                       o.branch.format ? o.branch.format->hash.hex() : "");
  all += fmt::format("{} {} {} {}\n", o.run.length, o.run.batch, o.run.bos, static_cast<int>(o.run.products.scalar));
  for (const arch::Parameter& p : model.parameters) {
    const auto f = formats.find(p.name);
    all += fmt::format("{} {} {}\n", p.name, print(model.weights.at(p.name).type),
                       f == formats.end() ? "" : f->second->hash.hex());
  }
  all += hash_bytes(text.data(), text.size_bytes()).hex();
  return hash_text(all).hex();
}

std::function<std::string()> whole_of(const std::shared_ptr<arch::ModelIdentity>& identity) {
  if (!identity) return {};
  return [identity] { return identity->whole(); };
}

}  // namespace

// The numbers of a part's weights after the parts before `end`: decoded at the first request, then cached.
class ByLayers::Numbers {
 public:
  Numbers(ByLayers& run, size_t end) : run_(run), end_(end) {}

  std::span<const float> of(const std::string& name) {
    const auto found = held_.find(name);
    if (found != held_.end()) return found->second;
    std::optional<std::vector<float>> done = run_.done(name, end_);
    return held_[name] = done ? std::move(*done) : values_of(run_.engine_, run_.model_.weights.at(name));
  }
  void set(const std::string& name, std::vector<float> values) { held_[name] = std::move(values); }

 private:
  ByLayers& run_;
  const size_t end_;
  std::map<std::string, std::vector<float>> held_;
};

ByLayers::ByLayers(run::Engine& engine, const arch::Model& model, std::map<std::string, FormatRef> formats,
                   std::span<const text::TokenId> text, ByLayersOptions options)
    : engine_(engine),
      model_(model),
      formats_(std::move(formats)),
      options_(std::move(options)),
      branches_(branch_ranks(model, formats_, options_.branch)),
      run_(engine, model, text, options_.run),
      journal_(options_.folder, key_of(model, formats_, text, options_), options_.anew, whole_of(options_.identity)),
      rounded_(journal_.values_folder(), kRounded, journal_.seal_key()),
      true_(journal_.values_folder(), kTrue, journal_.seal_key()),
      rounder_(options_.method.strategy->rounder(engine, options_.numbers)),
      nearest_(find_strategy("rtn").rounder(engine, options_.numbers)),
      errors_(engine) {
  refuse_formats();
  refuse_branches();
  if (!options_.method.preparations.empty()) {
    const graph::Graph g = transform_graph(model);
    sites_ = graph::scale_sites(g);
    for (graph::ScaleSite& site : graph::query_key_sites(g)) sites_.push_back(std::move(site));
  }
  for (size_t k = 0; k < run_.parts(); ++k)
    for (const std::string& name : run_.part(k).parameters) part_of_.emplace(name, k);
  discard_unfit_parts();
}

std::vector<std::string> ByLayers::rounded_in(size_t k) const {
  std::vector<std::string> out;
  for (const std::string& name : run_.part(k).parameters)
    if (part_of_.at(name) == k && formats_.contains(name)) out.push_back(name);
  return out;
}

// Why a saved part does not belong to this run; afterwards every weight is known to exist with its size.
std::string ByLayers::unfit(size_t k) const {
  if (k >= run_.parts()) return "the model has no such part";
  std::set<std::string> wanted;
  for (const std::string& name : rounded_in(k)) {
    wanted.insert(name);
    if (branches_.contains(name)) wanted.insert({arch::branch_a(name), arch::branch_b(name)});
  }
  std::set<std::string> told;
  for (const Journal::Line& line : journal_.report(k).lines) {
    if (!formats_.contains(line.name) || !wanted.contains(line.name)) return fmt::format("it lists '{}'", line.name);
    told.insert(line.name);
  }
  for (const std::string& name : rounded_in(k))
    if (!told.contains(name)) return fmt::format("it does not list '{}'", name);
  for (const std::string& name : journal_.report(k).changed) {
    if (!part_of_.contains(name) || wanted.contains(name)) return fmt::format("it lists '{}'", name);
    wanted.insert(name);
  }
  for (const auto& [name, shape] : journal_.weights(k)) {
    if (wanted.erase(name) == 0) return fmt::format("it has a weight '{}'", name);
    const file::TensorSpec spec{name, shape, {Scalar::f32, format_of(name)}};
    const arch::Parameter* const p = model_.find(name);
    try {
      if (spec.blob_bytes() != std::ssize(std::span(journal_.weight(name, format_of(name), k + 1)->bytes)) ||
          (p && spec.rows() * spec.columns() != p->count()))
        return fmt::format("'{}' is of another size", name);
    } catch (const Error&) {
      return fmt::format("'{}' is of another shape", name);
    }
  }
  const size_t losses = journal_.report(k).losses.size();
  if (losses != 0 && std::ssize(journal_.report(k).losses) != run_.windows() * options_.run.length)
    return fmt::format("it has {} losses", losses);
  return wanted.empty() ? "" : fmt::format("it has no weight '{}'", *wanted.begin());
}

void ByLayers::discard_unfit_parts() {
  for (size_t k = 0; k < journal_.end(); ++k)
    if (journal_.has(k))
      if (const std::string why = unfit(k); !why.empty()) journal_.discard(k, why);
}

void ByLayers::refuse_formats() {
  const Strategy& strategy = *options_.method.strategy;
  std::map<const Format*, std::optional<std::string>> reasons;
  for (const auto& [name, format] : formats_)
    if (!reasons.contains(format.get())) {
      std::optional<std::string>& why = reasons[format.get()] = strategy.refuses(*format, options_.numbers);
      // A strategy that can train any numbers must not change weights that stay floats.
      if (!why && strategy.by_blocks() && plain_scalar(*format)) why = "float formats have no codes to learn";
    }
  const bool takes_one = std::ranges::any_of(reasons, [](const auto& r) { return !r.second; });
  for (const auto& [name, format] : formats_) {
    const std::optional<std::string>& why = reasons.at(format.get());
    if (why) left_alone_.insert(format.get());
    // Weights that stay floats among rounded ones, such as routers or by --tensor-type, have nothing to learn.
    if (why && !(takes_one && plain_scalar(*format)))
      throw Error(
          Exit::user,
          fmt::format("'{}' cannot be quantized to '{}' by '{}': {}", name, format->name, strategy.name(), *why),
          "choose another strategy or another format");
  }
}

// Branches before rounding need strategies that read only one weight and its input statistics.
void ByLayers::refuse_branches() const {
  const Strategy& strategy = *options_.method.strategy;
  if (!options_.branch.are_wanted() || !options_.branch.before_rounding()) return;
  if (!strategy.by_blocks() && !strategy.observes().cross) return;
  throw Error(Exit::usage,
              fmt::format("'{}' quantizes by the outputs of whole layers or of original weights, which do not include "
                          "a branch that is computed before quantization",
                          strategy.name()),
              "choose another strategy, or a branch of the quantization error (--low-rank-method eora)");
}

graph::TapKinds ByLayers::observes() const {
  graph::TapKinds kinds = options_.method.observes();
  return kinds |= options_.branch.observes();
}

bool ByLayers::run(const std::function<void(const ByLayersProgress&)>& progress, const std::function<bool()>& stop) {
  for (size_t k = first_to_do(); journal_.first_missing() < run_.parts(); ++k) {
    if (journal_.has(k))
      run_through(k, progress);
    else
      round_part(k, progress);
    if (stop && k + 1 < run_.parts() && stop()) return false;
  }
  journal_.require_same_model();
  losses_ = journal_.report(run_.parts() - 1).losses;
  return true;
}

// The first missing part, if its input values are saved; else 0, to compute them again.
size_t ByLayers::first_to_do() {
  const size_t first = journal_.first_missing();
  if (first == 0 || first >= run_.parts()) return first;
  const auto kept = journal_.values(first - 1);
  const auto of = [&](const char* set) {
    const auto found = kept->find(set);
    return found == kept->end() ? std::map<int, Seal>() : found->second;
  };
  const auto are_all = [&](const std::map<int, Seal>& seals) {
    const std::vector<int> wanted = run_.handed_on(first - 1);
    return std::ranges::all_of(wanted, [&](int number) { return seals.contains(number); });
  };
  if (kept && are_all(of(kRounded)) && (!carries_truth() || are_all(of(kTrue))) && rounded_.take_up(of(kRounded)) &&
      true_.take_up(of(kTrue)))
    return first;
  warn(fmt::format("the inputs of part {} in '{}' have changed: the parts before it are run again", first + 1,
                   journal_.folder().string()));
  return 0;
}

Journal::Values ByLayers::seals_behind(size_t k) const {
  Journal::Values out;
  out[kRounded] = rounded_.seals(run_.handed_on(k));
  if (carries_truth()) out[kTrue] = true_.seals(run_.handed_on(k));
  return out;
}

// The state of a part while it is rounded.
struct ByLayers::Part {
  size_t number, parts;
  const graph::LayerPart& part;
  Numbers before, after;
  PartState state;                // after preparations
  std::vector<std::string> mine;  // to be rounded here
  std::map<std::string, arch::Weight> weights;
  std::map<std::string, Branch> branches;
  std::vector<Journal::Line> lines;  // of the report
  const std::function<void(const ByLayersProgress&)>& progress;
  int64_t all_windows;
  std::vector<std::string> unsound = {};  // by state.reads: what was wrong with the sums, which are dropped

  bool is_last() const { return number + 1 == parts; }
  calibrate::LayerRun::WeightOf weight_before() {
    return [this](const std::string& name) { return before.of(name); };
  }
  calibrate::LayerRun::WeightOf weight_after() {
    return [this](const std::string& name) { return after.of(name); };
  }
  void tell(const std::string& doing, double share) const {
    if (progress) progress({number, parts, doing, share});
  }
  calibrate::LayerRun::Progress windows(const char* doing, double from, double to) const {
    return [=, this](int64_t done) { tell(doing, from + (to - from) * done / all_windows); };
  }
};

bool ByLayers::carries_truth() const {
  return observes().cross || options_.method.strategy->by_blocks();
}

void ByLayers::carry_truth(Part& at) {
  if (!carries_truth() || at.is_last()) return;
  run_.run(at.number, at.weight_before(), &true_, &true_, {},
           at.windows("continues with the original weights", 0.2, 0.3));
  run_.keep_written(at.number, &true_);
}

calibrate::PartRun ByLayers::carry_rounded(Part& at) {
  calibrate::PartRun gone = run_.run(at.number, at.weight_after(), &rounded_, at.is_last() ? nullptr : &rounded_, {},
                                     at.windows("goes on", 0.85, 1));
  run_.keep_written(at.number, &rounded_);
  return gone;
}

// Collects the weights' input statistics on the text, and applies preparations.
void ByLayers::observe(Part& at) {
  const size_t k = at.number;
  const graph::TapKinds kinds = this->observes();
  const bool observes = kinds.squares || kinds.magnitudes || kinds.largest || kinds.gram;
  calibrate::PartRun seen;
  if (!at.mine.empty() && kinds.cross)
    seen = run_.compare(k, at.weight_before(), &rounded_, &true_, kinds, at.windows("reads", 0, 0.2));
  else if (!at.mine.empty() && observes)
    seen = run_.run(k, at.weight_before(), &rounded_, nullptr, kinds, at.windows("reads", 0, 0.2));
  carry_truth(at);
  at.unsound = drop_unsound(seen.taps);
  rounder_->begin_part();
  errors_.forget();
  at.state = prepared(k, std::move(seen.taps), at.mine, at.weight_before());
  for (const std::string& name : at.part.parameters) {
    // Weights to be rounded follow later; until then they are unchanged.
    const bool changed = at.state.changed.contains(name);
    if (!changed && std::ranges::find(at.mine, name) != at.mine.end()) continue;
    const std::span<const float> values = changed ? at.state.model.weights.at(name).f32() : at.before.of(name);
    at.after.set(name, {values.begin(), values.end()});
  }
}

RoundingTask ByLayers::task_of(Part& at, const std::string& name) const {
  const arch::Parameter& p = *model_.find(name);
  RoundingTask task;
  task.name = p.gguf.empty() ? p.name : p.gguf;
  task.format = formats_.at(p.name);
  task.values = at.state.changed.contains(p.name) ? at.state.model.weights.at(p.name).f32() : at.before.of(p.name);
  task.columns = p.shape.back().number();
  task.matrices = p.shape.size() == 3 ? p.shape[0].number() : 1;
  task.rows = std::ssize(task.values) / task.columns / task.matrices;
  if (const auto k = run::first_not_finite(task.values))
    throw Error(Exit::numeric, fmt::format("'{}' holds {}", task.name, task.values[*k]), "the model is broken");
  task.reads = reads_of(at.state.reads, p.name);
  return task;
}

FormatRef ByLayers::format_of(const std::string& name) const {
  if (const auto format = formats_.find(name); format != formats_.end()) return format->second;
  const bool is_branch = std::ranges::any_of(
      branches_, [&](const auto& b) { return name == arch::branch_a(b.first) || name == arch::branch_b(b.first); });
  return is_branch ? options_.branch.format : nullptr;
}

std::optional<std::vector<float>> ByLayers::done(const std::string& name, size_t end) {
  const std::optional<arch::Weight> w = journal_.weight(name, format_of(name), end);
  if (!w) return std::nullopt;
  std::vector<float> values = values_of(engine_, *w);
  if (branches_.contains(name)) {
    const std::string a = arch::branch_a(name), b = arch::branch_b(name);
    Branch{*journal_.weight(a, format_of(a), end), *journal_.weight(b, format_of(b), end)}.add(engine_, 1, values);
  }
  return values;
}

Branch ByLayers::branch_beside(const std::string& name, const RoundingTask& task, std::span<const float> values) {
  constexpr int kMatrices = 12;  // bits: consecutive seeds for stacked matrices
  const uint32_t number = std::distance(branches_.begin(), branches_.find(name));
  return branch_of(engine_, task, values, model_.find(name)->shape, branches_.at(name), options_.branch,
                   options_.numbers.damping, number << kMatrices);
}

// Rounds a single weight; with a branch that comes before rounding, the remainder.
Rounding ByLayers::rounded(Part& at, const std::string& name, const RoundingTask& task) {
  if (!is_for_strategy(at, task)) {
    Rounding out = nearest_->round(task);
    if (left_alone_.contains(task.format.get()))
      out.remark = fmt::format("is {}, which '{}' leaves alone", task.format->name, options_.method.strategy->name());
    return out;
  }
  if (!branches_.contains(name) || !options_.branch.before_rounding()) return rounder_->round(task);
  const Branch& branch = at.branches[name] = branch_beside(name, task, task.values);
  std::vector<float> rest(task.values.begin(), task.values.end());
  branch.add(engine_, -1, rest);
  RoundingTask of_rest = task;
  of_rest.values = rest;
  return rounder_->round(of_rest);
}

Rounding ByLayers::nearest_because(const RoundingTask& task, const Error& broken) {
  warn(fmt::format("'{}' is rounded to nearest: {}{}{}", task.name, broken.what(), broken.hint().empty() ? "" : "; ",
                   broken.hint()));
  Rounding out = nearest_->round(task);
  out.remark = fmt::format("{}: rounded to nearest", broken.what());
  return out;
}

void ByLayers::keep(Part& at, const std::string& name, const RoundingTask& task, Rounding rounding) {
  if (branches_.contains(name)) {
    if (!options_.branch.before_rounding()) {
      std::vector<float> lost(task.values.begin(), task.values.end());
      for (size_t i = 0; i < lost.size(); ++i) lost[i] -= rounding.values[i];
      at.branches[name] = branch_beside(name, task, lost);
    }
    at.branches.at(name).add(engine_, 1, rounding.values);
  }
  if (const std::string why = unsound(at, task); !why.empty()) {
    rounding.remark += fmt::format("{}{}: rounded to nearest", rounding.remark.empty() ? "" : "; ", why);
    warn(fmt::format("'{}' is rounded to nearest: {}", task.name, why));
  }
  const double error = relative_error(rounding.values, task.values);
  const std::optional<double> output = errors_.relative(task, rounding.values);
  if (const auto more = at.state.remarks.find(name); more != at.state.remarks.end())
    rounding.remark = more->second + (rounding.remark.empty() ? "" : "; ") + rounding.remark;
  at.lines.push_back({name, options_.method.text(), rounding.remark, error, output.value_or(-1)});
  arch::Weight& w = at.weights[name];
  w.type = {model_.find(name)->shape, {Scalar::f32, task.format}};
  w.bytes = std::move(rounding.blob);
  at.after.set(name, std::move(rounding.values));
}

std::string ByLayers::unsound(const Part& at, const RoundingTask& task) {
  return task.reads ? at.unsound[task.reads - at.state.reads.data()] : "";
}

bool ByLayers::is_for_strategy(const Part& at, const RoundingTask& task) const {
  if (left_alone_.contains(task.format.get())) return false;
  // The sound matrices of a stack use their statistics, where the strategy rounds each by itself.
  const bool one_by_one = task.matrices > 1 && !options_.method.strategy->by_blocks();
  return one_by_one || unsound(at, task).empty();
}

// Whether the strategy rounds the weight with its block: products read it, and the layer's outputs are comparable.
bool ByLayers::goes_with_block(const Part& at, const std::string& name, const RoundingTask& task) const {
  return options_.method.strategy->by_blocks() && is_for_strategy(at, task) && at.part.layer >= 0 &&
         graph::layer_of(name) == at.part.layer && task.reads && hands_on(at.part);
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
    at.tell(task.name, 0.3 + 0.55 * i / at.mine.size());
    Rounding rounding;
    try {
      rounding = rounded(at, name, task);
    } catch (const Error& e) {
      if (e.code() != Exit::numeric || branches_.contains(name)) throw;
      rounding = nearest_because(task, e);
    }
    keep(at, name, task, std::move(rounding));
  }
  if (together.empty()) return;
  BlockObjective objective(engine_, run_, at.number, together, at.weight_after(), &rounded_, &true_);
  BlockRounding block;
  try {
    block = rounder_->round_block(objective, tasks, [&](int64_t done, int64_t steps) {
      at.tell(fmt::format("learns, step {} of {}", done, steps), 0.3 + 0.55 * done / steps);
    });
    block.weights.front().remark =
        fmt::format("the error of its layer's output is {:.5f}, and {:.5f} when rounded to nearest",
                    std::sqrt(block.after), std::sqrt(block.before));
  } catch (const Error& e) {
    if (e.code() != Exit::numeric) throw;
    block.weights.clear();
    for (const RoundingTask& task : tasks) block.weights.push_back(nearest_because(task, e));
  }
  for (size_t i = 0; i < together.size(); ++i) keep(at, together[i], tasks[i], std::move(block.weights[i]));
}

void ByLayers::round_part(size_t k, const std::function<void(const ByLayersProgress&)>& progress) {
  Part at{k,  run_.parts(), run_.part(k), Numbers(*this, k), Numbers(*this, k), {}, {},
          {}, {},           {},           progress,          run_.windows()};
  at.mine = rounded_in(k);
  observe(at);
  round_weights(at);
  std::vector<Journal::Kept> kept;
  Journal::Report report;
  for (const std::string& name : at.mine) {
    kept.push_back({name, &at.weights.at(name)});
    const auto branch = at.branches.find(name);
    if (branch == at.branches.end()) continue;
    kept.push_back({arch::branch_a(name), &branch->second.a});
    kept.push_back({arch::branch_b(name), &branch->second.b});
  }
  for (const std::string& name : at.part.parameters)
    if (at.state.changed.contains(name) && !at.weights.contains(name)) {
      kept.push_back({name, &at.state.model.weights.at(name)});
      report.changed.push_back(name);
    }
  const calibrate::PartRun gone = carry_rounded(at);
  report.lines = std::move(at.lines);
  if (const auto losses = gone.results.find(arch::kResult); losses != gone.results.end())
    report.losses = losses->second;
  journal_.add(k, kept, std::move(report), seals_behind(k));
  run_.drop_read(k, &rounded_);
  run_.drop_read(k, &true_);
}

// Runs a finished part again for its outputs.
void ByLayers::run_through(size_t k, const std::function<void(const ByLayersProgress&)>& progress) {
  Part at{k,  run_.parts(), run_.part(k), Numbers(*this, k), Numbers(*this, k + 1), {}, {},
          {}, {},           {},           progress,          run_.windows()};
  carry_truth(at);
  (void)carry_rounded(at);
  run_.drop_read(k, &rounded_);
  run_.drop_read(k, &true_);
}

PartState ByLayers::prepared(size_t k, std::vector<calibrate::TapSums> reads, const std::vector<std::string>& mine,
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
      arch::Weight& w = out.model.weights.at(c.parameter);
      w = arch::f32_weight(w.type.shape, weight(c.parameter));
    }
  }
  for (const Preparation* p : options_.method.preparations) p->prepare(engine_, out, options_.numbers);
  return out;
}

std::vector<RoundedTensor> ByLayers::report() const {
  std::vector<RoundedTensor> out;
  for (size_t k = 0; k < journal_.first_missing(); ++k)
    for (const Journal::Line& line : journal_.report(k).lines) {
      const arch::Parameter& p = *model_.find(line.name);
      const auto branch = branches_.find(p.name);
      out.push_back({p.gguf.empty() ? p.name : p.gguf, formats_.at(p.name)->name, line.strategy, line.remark,
                     line.error, line.output_error, branch == branches_.end() ? 0 : branch->second});
    }
  return out;
}

arch::Model ByLayers::outline() const {
  arch::Model out = model_;
  for (const auto& [name, format] : formats_) {
    arch::Weight& w = out.weights.at(name);
    w.type.element = {Scalar::f32, format};
    w.bytes = {};
  }
  for (size_t k = 0; k < journal_.first_missing(); ++k)
    for (const std::string& name : journal_.report(k).changed) {
      arch::Weight& w = out.weights.at(name);
      w.type.element = {Scalar::f32, nullptr};
      w.bytes = {};
    }
  if (branches_.empty()) return out;
  std::vector<arch::LowRankBranch> branches;
  for (const auto& [weight, rank] : branches_) branches.push_back({weight, rank});
  set_low_rank_branches(out, branches);
  out.parameters = own_parameters(out);
  for (const arch::Parameter& p : out.parameters)
    if (p.role == arch::kBranchRole) out.weights[p.name].type = {p.shape, {Scalar::f32, format_of(p.name)}};
  return out;
}

arch::Weight ByLayers::weight(const arch::Parameter& p) {
  std::optional<arch::Weight> w = journal_.weight(p.name, format_of(p.name));
  LUMEN_CHECK(w, "'{}' was not quantized", p.name);
  // The shape may have axes that files do not store.
  w->type.shape = p.shape;
  return *w;
}

}  // namespace lumen::model::compress
