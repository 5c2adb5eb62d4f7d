#include "cli/convert/budget.h"

#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/convert/candidates/candidates.h"
#include "cli/convert/high_impact.h"
#include "cli/convert/measured_result/measured_result.h"
#include "cli/measured_quality.h"
#include "cli/names.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/choose/choose.h"
#include "model/compress/criteria/criteria.h"
#include "model/compress/score/score.h"
#include "model/infer/measure/compare_models.h"
#include "model/report/compression/compression.h"

namespace lumen::cli {
namespace {

constexpr int kTries = 3;  // of a quality budget: later tries scale predictions by the measured loss
constexpr size_t kFrontLines = 12;
constexpr double kMostFactor = 1.5;  // of a measured loss to the predicted one, before another choice is tried
constexpr const char *kByLoss = "loss", *kByCriteria = "criteria";  // names of the stored scores

class BudgetRun {
 public:
  BudgetRun(const Shared& shared, const model::arch::Model& model, std::string in, std::string out,
            const model::compress::QuantizeOptions& what, CalibratedFlags& flags)
      : model_(model),
        in_(std::move(in)),
        out_(std::move(out)),
        flags_(flags),
        library_(shared.library()),
        budget_(model::compress::parse_budget(flags.budget)),
        engine_(shared.engine()),
        candidates_(candidates_of(model.family->library().formats(), flags.candidates, budget_, model.weight_count())) {
    if (flags_.strategy.empty()) flags_.strategy = "gptq";
    if (!flags_.as_fast_as.empty()) fastest_ = named_format(model.family->library().formats(), flags_.as_fast_as);
    find_weights(what);
    options_ = by_layers_options(model, flags_);
    if (cuts()) {
      cut_ = high_impact(model.family->library().formats(), flags_);
      if (budget_.kind == model::compress::Budget::Kind::time)
        throw usage_error("--high-impact: the time of weights in parts is not measured");
      if (flags_.criteria != "loss" || fastest_)
        throw usage_error(
            "--high-impact: shares are chosen by the predicted loss, without --criteria and --as-fast-as");
      groups_ = model::compress::column_groups(model_, names_);
    }
    drop_refused();
    folder_ = flags_.folder.empty() ? out_ + ".work" : flags_.folder;
    report_ = begin_report(model_, in_);
    report_.device = engine_.device().describe();
    report_.budget = budget_.text();
  }

  // Dry run: computes only sizes.
  int say() {
    if (cuts())
      ratios_ = model::compress::unscored_ratios(model_, names_, groups_, ratio_options());
    else
      scores_ = model::compress::unscored_weights(model_, names_, candidates_);
    const model::compress::ChoiceProblem p = problem(1);
    put(fmt::format("{} weights of {} numbers to choose formats for, among {} candidates: {}\n", names_.size(),
                    p.weights() - p.fixed_weights, candidates_.size(), names_of(candidates_)));
    int64_t least = p.fixed_bytes, most = p.fixed_bytes;
    for (const model::compress::ChoiceBlock& block : p.blocks)
      for (const model::compress::ChoiceItem& item : block.items) {
        const auto bytes = [](const model::compress::ChoiceCandidate& c) { return c.bytes; };
        least += std::ranges::min(item.candidates, {}, bytes).bytes;
        most += std::ranges::max(item.candidates, {}, bytes).bytes;
      }
    put(fmt::format("from {} to {} bytes, {:.3f} to {:.3f} bits per weight; {} bytes of them are not chosen\n", least,
                    most, 8.0 * least / p.weights(), 8.0 * most / p.weights(), p.fixed_bytes));
    if (budget_.limits_size()) {
      put(fmt::format("the budget is {} bytes\n", budget_.most_bytes(p.weights())));
      if (budget_.most_bytes(p.weights()) < least)
        throw Error(Exit::user, fmt::format("no choice fits: the least is {} bytes", least), less_bits());
    }
    return 0;
  }

  int run() {
    split_text();
    catch_interrupts();
    score();
    double scale = 1;  // of scores: measured loss divided by predicted loss
    for (int k = 0;; ++k) {
      const model::compress::ChoiceProblem p = problem(scale);
      const model::compress::Choice choice = chosen(p);
      tell_choice(p, choice);
      if (!round(p, choice, k)) return exit_code(Exit::interrupted);
      measure(choice);
      if (!again(choice, k, &scale)) break;
    }
    if (budget_.limits_size() && !cuts() && !try_without_fewest_bits()) return exit_code(Exit::interrupted);
    if (!measure_compared()) return exit_code(Exit::interrupted);
    finish();
    return 0;
  }

 private:
  using Report = model::report::CompressionReport;

  static std::string names_of(const std::vector<FormatRef>& formats) {
    std::string out;
    for (const FormatRef& f : formats) out += fmt::format("{}{}", out.empty() ? "" : ", ", f->name);
    return out;
  }

  // The matrices that `lumen quantize` would quantize without a budget; small sensitive ones stay f32.
  void find_weights(model::compress::QuantizeOptions what) {
    const FormatRef probe = model::arch::format_of_scalar(model_.family->library().formats(), Scalar::bf16);
    what.target = probe->name;
    what.pure = true;
    fixed_ = model::compress::choose_formats(model_, what, nullptr);
    for (const model::arch::Parameter& p : model_.parameters) {
      const auto found = fixed_.find(p.name);
      if (found == fixed_.end() || found->second != probe) continue;
      names_.push_back(p.name);
      fixed_.erase(found);
    }
    if (names_.empty()) throw user_error("'{}' has no matrix whose format could be chosen", in_);
  }

  bool cuts() const { return !flags_.high.empty(); }

  model::compress::RatioOptions ratio_options() const {
    model::compress::RatioOptions o;
    o.run = options_.run;
    o.high = cut_.formats;
    o.low = candidates_;
    o.ratios = cut_.ratios;
    o.strategy = options_.method.strategy;
    o.numbers = options_.numbers;
    o.folder = folder_ / "scores";
    return o;
  }

  // What to do where even the smallest choice is too large.
  std::string less_bits() const {
    if (!flags_.candidates.empty() && !is_named(kGgufCandidates)) return "allow more, or name candidates of fewer bits";
    return fmt::format(
        "allow more, or add --candidates {}: formats that fit rows of any length, but that Lumen alone reads",
        kAnyCandidates);
  }

  bool is_named(const std::string& name) const {
    return std::ranges::find(flags_.candidates, name) != flags_.candidates.end();
  }

  // Removes candidates that the strategy cannot produce.
  void drop_refused() {
    for (const FormatRef& f : cut_.formats)
      if (const auto why = options_.method.strategy->refuses(*f, options_.numbers))
        throw Error(
            Exit::user,
            fmt::format("strategy '{}' cannot quantize to '{}': {}", options_.method.strategy->name(), f->name, *why),
            "take another for --high-impact, or another --strategy");
    std::erase_if(candidates_, [&](const FormatRef& f) {
      const std::optional<std::string> why = options_.method.strategy->refuses(*f, options_.numbers);
      if (!why) return false;
      if (!is_named(f->name)) {
        note(fmt::format("{} is no candidate for {}: {}", f->name, options_.method.strategy->name(), *why));
        return true;
      }
      throw Error(
          Exit::user,
          fmt::format("strategy '{}' cannot quantize to '{}': {}", options_.method.strategy->name(), f->name, *why),
          "leave it out of --candidates, or take another --strategy");
    });
  }

  // Keeps the last tenth of the windows for the measurement.
  void split_text() {
    text_ = flags_.read(model_);
    options_.run = flags_.run;
    const int64_t length = options_.run.length;
    const int64_t windows = std::ssize(text_) / length;
    if (windows < 2)
      throw Error(Exit::user,
                  fmt::format("the text has {} tokens: choosing needs two windows of {}, one to measure on",
                              text_.size(), length),
                  "give a longer text or a smaller --ctx-size");
    const int64_t kept = std::max<int64_t>(1, windows / 10);
    held_.assign(text_.begin() + (windows - kept) * length, text_.begin() + windows * length);
    text_.resize((windows - kept) * length);
    report_.text = fmt::format("{}: {} windows of {} tokens to calibrate on, the last {} to measure on", flags_.names(),
                               windows - kept, length, kept);
    note(report_.text);
  }

  void score() {
    const Stopwatch watch;
    model::compress::ScoreOptions o;
    o.run = options_.run;
    o.candidates = candidates_;
    o.strategy = options_.method.strategy;
    o.numbers = options_.numbers;
    o.folder = folder_ / "scores";
    std::vector<model::text::TokenId> some = text_;
    some.resize(std::min<size_t>(some.size(), flags_.score_chunks * options_.run.length));
    if (options_.anew) remove_tree(folder_);
    std::filesystem::create_directories(o.folder);
    if (cuts()) return score_shares(some, watch);
    SealedFolderOptions places;
    places.lost = "scores of weights are not kept";
    SealedFolder kept(folder_, places);
    // Scores belong to exactly this model, and nothing checks that later, so this waits for the hash of its whole
    // content.
    const std::string key =
        model::compress::score_key(options_.identity->whole() + options_.source, model_, names_, candidates_, some, o);
    if (const auto known = model::compress::read_scores(kept, kByLoss, key, model_.family->library().formats())) {
      note(fmt::format("scores are those of '{}'", folder_.string()));
      scores_ = *known;
    } else {
      Progress progress;
      scores_ =
          model::compress::score_weights(engine_, model_, names_, some, o, [&](const std::string& doing, double share) {
            if (interrupted().load()) throw Error(Exit::interrupted, "stopped");
            const double seconds = watch.seconds();
            progress.update(fmt::format("choose {} {:.0f}% | {:.0f} s left", doing, 100 * share,
                                        share > 0.02 ? seconds / share * (1 - share) : 0));
          });
      progress.finish(fmt::format("choose: {} weights in {} formats scored", names_.size(), candidates_.size()));
      model::compress::write_scores(kept, kByLoss, key, scores_);
    }
    if (flags_.criteria == "outputs") judge(kept, key, some);
    if (budget_.kind == model::compress::Budget::Kind::time || fastest_) time_products();
    if (fastest_) drop_slower();
    report_.stages.push_back({"scores", watch.seconds()});
  }

  // Scores candidates by the error of layer outputs, of attention weights and of the largest values.
  void judge(SealedFolder& kept, const std::string& key_of_loss, std::span<const model::text::TokenId> text) {
    model::compress::CriteriaOptions o;
    o.run = options_.run;
    o.folder = folder_ / "scores";
    const std::string key = hash_text(fmt::format("{} {}", key_of_loss, o.windows)).hex();
    if (const auto known = model::compress::read_scores(kept, kByCriteria, key, model_.family->library().formats())) {
      scores_ = *known;
      return;
    }
    std::vector<std::string> told;
    Progress progress;
    scores_ = model::compress::score_by_criteria(engine_, model_, std::move(scores_), text, o, &told,
                                                 [&](const std::string& doing, double) {
                                                   if (interrupted().load()) throw Error(Exit::interrupted, "stopped");
                                                   progress.update(doing);
                                                 });
    progress.finish(fmt::format("criteria: formats are dropped for {} of {} weights", told.size(), scores_.size()));
    for (const std::string& line : told) note(line);
    model::compress::write_scores(kept, kByCriteria, key, scores_);
  }

  void drop_slower() {
    model::compress::ProductTimes times(engine_);
    for (model::compress::WeightScore& w : scores_) {
      const model::arch::Parameter& p = *model_.find(w.name);
      if (p.shape.back().number() % fastest_->block != 0) continue;
      const auto known = ms_.find({w.name, fastest_->name});
      const double most = known != ms_.end() ? known->second
                                             : w.products * times.ms(fastest_, p.shape[p.shape.size() - 2].number(),
                                                                     p.shape.back().number());
      // The run-to-run variation of timings.
      constexpr double kNoise = 1.05;
      std::vector<model::compress::CandidateScore> kept;
      for (const model::compress::CandidateScore& c : w.candidates)
        if (ms_.at({w.name, c.format->name}) <= kNoise * most) kept.push_back(c);
      if (kept.empty())
        throw Error(Exit::user, fmt::format("no candidate is as fast as {} for '{}'", fastest_->name, w.name),
                    "name it, or faster ones, among --candidates");
      if (kept.size() < w.candidates.size())
        verbose(fmt::format("{}: {} of {} candidates are slower than {}", w.name, w.candidates.size() - kept.size(),
                            w.candidates.size(), fastest_->name));
      w.candidates = std::move(kept);
    }
  }

  void score_shares(const std::vector<model::text::TokenId>& some, const Stopwatch& watch) {
    Progress progress;
    const auto tell = [&](const std::string& doing, double share) {
      if (interrupted().load()) throw Error(Exit::interrupted, "stopped");
      progress.update(fmt::format("choose {} {:.0f}%", doing, 100 * share));
    };
    model::compress::rank_columns(engine_, model_, some, options_.run, folder_ / "scores", groups_,
                                  [&](double share) { tell("ranks columns", share); });
    ratios_ = model::compress::score_ratios(engine_, model_, names_, groups_, some, ratio_options(), tell);
    size_t count = 0;
    for (const model::compress::RatioScore& w : ratios_.weights) count += w.candidates.size();
    progress.finish(fmt::format("choose: {} ways to hold {} weights scored", count, names_.size()));
    report_.stages.push_back({"scores", watch.seconds()});
  }

  void time_products() {
    model::compress::ProductTimes times(engine_);
    for (const model::compress::WeightScore& w : scores_) {
      const model::arch::Parameter& p = *model_.find(w.name);
      const int64_t rows = p.shape[p.shape.size() - 2].number(), columns = p.shape.back().number();
      for (const model::compress::CandidateScore& c : w.candidates)
        ms_[{w.name, c.format->name}] = w.products > 0 ? w.products * times.ms(c.format, rows, columns) : 0;
    }
  }

  // One block per weight, because weights are independent, except where columns may be split.
  model::compress::ChoiceProblem problem(double scale) {
    model::compress::ChoiceProblem p;
    if (cuts()) p = model::compress::ratio_problem(ratios_, scale, &where_);
    for (const model::compress::WeightScore& w : scores_) {
      model::compress::ChoiceItem item;
      item.name = w.name;
      item.weights = w.weights;
      for (const model::compress::CandidateScore& c : w.candidates) {
        const auto ms = ms_.find({w.name, c.format->name});
        item.candidates.push_back({c.format->name, c.bytes, c.score * scale, ms == ms_.end() ? 0 : ms->second});
      }
      p.blocks.push_back({{std::move(item)}, {}});
    }
    // Column permutations are stored, except where the weight before can be permuted instead.
    for (const model::compress::ColumnGroup& g : groups_)
      if (!g.before) p.fixed_bytes += g.columns * int64_t{sizeof(float)};
    for (const model::arch::Parameter& q : model_.parameters) {
      if (std::ranges::find(names_, q.name) != names_.end()) continue;
      const auto found = fixed_.find(q.name);
      graph::Type type = model_.weights.at(q.name).type;
      if (found != fixed_.end()) type.element = {Scalar::f32, found->second};
      p.fixed_bytes += graph::byte_size(type);
      p.fixed_weights += graph::elements(type.shape).number();
    }
    return p;
  }

  void tell_choice(const model::compress::ChoiceProblem& p, const model::compress::Choice& choice) {
    const model::compress::ChoiceFront front = model::compress::choice_front(p);
    put("predicted choices:\n        bytes   bits       loss\n");
    const size_t step = std::max<size_t>(1, front.points.size() / kFrontLines);
    for (size_t k = 0; k < front.points.size(); k += step)
      put(fmt::format("{:>13}  {:>5.3f}  {:>9.6f}\n", front.points[k].bytes, front.points[k].bits,
                      front.points[k].score));
    report_.front.clear();
    for (const model::compress::FrontPoint& f : front.points) report_.front.push_back({f.bytes, f.bits, f.score});
    report_.front_exact = front.exact;
    report_.predicted = choice.score;
    report_.bound = choice.bound;
    report_.proved = choice.proved;
    report_.tensors.clear();
    for (size_t b = 0; b < p.blocks.size(); ++b)
      for (size_t i = 0; i < p.blocks[b].items.size(); ++i) add_tensor(p.blocks[b].items[i], choice.picks[b][i]);
    put(fmt::format("chosen: {} bytes, {:.3f} bits per weight, predicted loss {:.6f} nats a token{}\n", choice.bytes,
                    choice.bits, choice.score,
                    choice.proved ? "" : fmt::format(" (at most {:.2g} from the best)", choice.gap)));
  }

  void add_tensor(const model::compress::ChoiceItem& item, size_t pick) {
    const model::arch::Parameter& q = *model_.find(item.name);
    const model::compress::ChoiceCandidate& c = item.candidates[pick];
    Report::Tensor& t = report_.tensors.emplace_back();
    t.name = q.gguf.empty() ? q.name : q.gguf;
    t.role = q.role;
    t.layer = graph::layer_of(q.name);
    t.format = c.name;
    t.strategy = options_.method.text();
    t.bytes = c.bytes;
    t.bits = 8.0 * c.bytes / std::max<int64_t>(item.weights, 1);
    // The next smaller and the next larger candidate, for the reason in the report.
    const model::compress::ChoiceCandidate *less = nullptr, *more = nullptr;
    for (const model::compress::ChoiceCandidate& other : item.candidates) {
      t.candidates.push_back({other.name, other.bytes, other.score});
      if (other.bytes < c.bytes && (!less || other.score < less->score)) less = &other;
      if (other.bytes > c.bytes && other.score < c.score && (!more || other.bytes < more->bytes)) more = &other;
    }
    t.reason = fmt::format("loses {:.2g}", c.score);
    if (less)
      t.reason +=
          fmt::format("; {} would lose {:.2g} and save {} bytes", less->name, less->score, c.bytes - less->bytes);
    if (more)
      t.reason +=
          fmt::format("; {} would lose {:.2g} for {} bytes more", more->name, more->score, more->bytes - c.bytes);
  }

  // Returns the model with columns split as chosen, sets the formats of its weights, and appends the split to the run's
  // key.
  model::arch::Model cut_as(const model::compress::Choice& choice, std::map<std::string, FormatRef>* chosen,
                            std::string* source) const {
    std::vector<model::compress::WeightParts> parts;
    for (size_t b = 0; b < where_.size(); ++b)
      for (size_t i = 0; i < where_[b].size(); ++i) {
        const model::compress::RatioScore& w = ratios_.weights[where_[b][i]];
        const model::compress::RatioCandidate& c = w.candidates[choice.picks[b][i]];
        if (!c.high) {
          (*chosen)[w.name] = c.low;
          continue;
        }
        const int64_t columns = model_.find(w.name)->shape.back().number();
        parts.push_back({w.name, {c.high_columns, columns - c.high_columns}});
        (*chosen)[graph::column_part(w.name, 0)] = c.high;
        (*chosen)[graph::column_part(w.name, 1)] = c.low;
      }
    *source += identity_of(groups_, parts);
    return model::compress::with_parts_of(model_, groups_, parts);
  }

  model::compress::Choice chosen(const model::compress::ChoiceProblem& p) const {
    try {
      return model::compress::choose(p, budget_);
    } catch (const Error& e) {
      if (e.code() != Exit::user) throw;
      throw Error(Exit::user, e.what(), less_bits());
    }
  }

  bool round(const model::compress::ChoiceProblem& p, const model::compress::Choice& choice, int k) {
    const Stopwatch watch;
    const FormatLibrary& formats = model_.family->library().formats();
    std::map<std::string, FormatRef> chosen = fixed_;
    model::compress::ByLayersOptions o = options_;
    std::optional<model::arch::Model> cut;
    if (cuts())
      cut = cut_as(choice, &chosen, &o.source);
    else
      for (size_t b = 0; b < p.blocks.size(); ++b)
        chosen[p.blocks[b].items[0].name] = formats.get(p.blocks[b].items[0].candidates[choice.picks[b][0]].name);
    o.folder = folder_ / fmt::format("try-{}", k + 1);
    o.anew = false;
    model::compress::ByLayers run(engine_, cut ? *cut : model_, chosen, text_, o);
    if (!run_by_layers(run, o.folder)) return false;
    for (const model::compress::RoundedTensor& r : run.report())
      for (Report::Tensor& t : report_.tensors)
        if (t.name == r.name) {
          t.error = r.error;
          if (r.output_error >= 0) t.weighted_error = r.output_error;
        }
    model::arch::write_gguf(run.outline(), out_, -1, 0, [&](const model::arch::Parameter& q) { return run.weight(q); });
    note(fmt::format("wrote {}", out_));
    report_.stages.push_back({fmt::format("rounding, try {}", k + 1), watch.seconds()});
    return true;
  }

  // The divergence from the original model on the held-out windows.
  model::infer::Divergence measured(const std::string& what, const model::arch::Model& rounded,
                                    model::report::MeasuredQuality* quality) {
    const model::infer::LoadedModel base(engine_, model_), other(engine_, rounded);
    model::infer::PerplexityOptions o;
    o.length = options_.run.length;
    o.bos = options_.run.bos;
    const model::infer::LoadedModel* const others[] = {&other};
    Progress progress;
    const model::infer::ComparedModels compared =
        model::infer::compare_models(base, others, held_, o, [&](int64_t done, int64_t all) {
          if (interrupted().load())
            throw Error(Exit::interrupted, "stopped", "the file is written; it was not measured");
          progress.update(fmt::format("measure {} window {}/{}", what, done, all));
          return true;
        });
    const model::infer::Divergence& d = compared.others[0].divergence;
    *quality = quality_of(d);
    quality->cosine = compared.others[0].cosine;
    report_.base.quality = base_quality_of(d);
    progress.finish(
        fmt::format("{} measured on {} tokens: KL {:.6f} +/- {:.6f}, same token {:.2f} %, perplexity {:.4f} "
                    "(before: {:.4f})",
                    what, d.tokens, d.mean, d.error, 100 * d.same_top, *quality->ppl, *report_.base.quality.ppl));
    return d;
  }

  void measure(const model::compress::Choice& choice) {
    const Stopwatch watch;
    const model::arch::Model result = model::arch::read_model(library_, out_);
    model::report::MeasuredQuality q;
    const model::infer::Divergence d = measured("the choice", result, &q);
    divergence_ = d.mean;
    divergence_error_ = d.error;
    note(fmt::format("KL {:.6f} was predicted", choice.score));
    report_.result = Report::Whole{out_, result.weight_bytes(), choice.bits, q};
    for (Report::Point& p : report_.points) p.chosen = false;
    report_.points.push_back(
        {fmt::format("{:.3f} bits", choice.bits), options_.method.text(), result.weight_bytes(), choice.bits, q, true});
    if (!flags_.json.empty() || !flags_.html.empty()) draw_histograms(engine_, model_, result, {}, &report_);
    report_.stages.push_back({"measuring", watch.seconds()});
  }

  // For the report: quantizes on the same text to the fixed formats of --compare-formats and measures each.
  bool measure_compared() {
    for (const std::string& name : flags_.compared) {
      const Stopwatch watch;
      model::compress::QuantizeOptions what;
      what.target = name;
      model::compress::ByLayersOptions o = options_;
      o.method = model::compress::parse_method("imatrix");
      o.folder = folder_ / ("compared-" + name);
      o.anew = false;
      model::compress::ByLayers run(engine_, model_, model::compress::choose_formats(model_, what, nullptr), text_, o);
      if (!run_by_layers(run, o.folder)) return false;
      model::arch::Model rounded = run.outline();
      for (const model::arch::Parameter& p : rounded.parameters)
        if (model::arch::Weight& w = rounded.weights.at(p.name); w.bytes.size() == 0) w = run.weight(p);
      Report::Point point{name, o.method.text(), rounded.weight_bytes(), 0, {}, false};
      point.bits = 8.0 * point.bytes / std::max<int64_t>(1, model_.weight_count());
      (void)measured(name, rounded, &point.quality);
      report_.points.push_back(std::move(point));
      report_.stages.push_back({name, watch.seconds()});
      run.remove_folder();
    }
    return true;
  }

  // Whether to choose again, because a quality budget was missed or leaves room to save bytes; then updates the scale
  // of scores from the measurement.
  bool again(const model::compress::Choice& choice, int k, double* scale) {
    if (!budget_.limits_score()) return false;
    const double lost = budget_.kind == model::compress::Budget::Kind::divergence
                            ? divergence_
                            : std::log(*report_.result->quality.ppl / *report_.base.quality.ppl);
    const bool fits = lost <= budget_.most_score();
    if (k + 1 == kTries || choice.score <= 0 || lost <= 0) {
      if (!fits)
        warn(fmt::format("{:.6f} nats were measured, more than the budget of {:.6f}", lost, budget_.most_score()));
      return false;
    }
    // Close enough to the budget: another try would save little.
    if (fits && lost > 0.7 * budget_.most_score()) return false;
    const double before = *scale;
    *scale *= lost / choice.score;
    // Another try after one that fits must not miss the budget, so it aims lower.
    if (fits) *scale = std::max(*scale, before / 8) * 1.1;
    note(fmt::format("{} nats of loss were measured where {:.6f} were predicted: choosing again", lost, choice.score));
    return true;
  }

  // Beyond what the held-out text leaves uncertain, and where it matters.
  bool is_far_from_predicted() const {
    constexpr double kLeast = 0.01;  // nats: a percent of perplexity
    return report_.predicted && divergence_ > kLeast &&
           divergence_ - 2 * divergence_error_ > kMostFactor * *report_.predicted;
  }

  // Predictions are quadratic in the errors, and formats of few bits can lose more. As long as the measured loss is far
  // from the predicted one, and this helps, the choice is made again without the chosen format of the fewest bits. The
  // best choice is written. False if interrupted.
  bool try_without_fewest_bits() {
    for (int k = 1; k < kTries && is_far_from_predicted(); ++k) {
      const FormatRef left_out = fewest_bits();
      const double least = divergence_;
      const std::vector<model::compress::WeightScore> all = scores_;
      for (model::compress::WeightScore& w : scores_)
        if (w.candidates.size() > 1) std::erase_if(w.candidates, [&](const auto& c) { return c.format == left_out; });
      note(fmt::format("{:.6f} nats of loss were measured where {:.6f} were predicted: choosing again without {}",
                       divergence_, *report_.predicted, left_out->name));
      const model::compress::ChoiceProblem p = problem(1);
      std::optional<model::compress::Choice> choice;
      try {
        choice = model::compress::choose(p, budget_);
      } catch (const Error& e) {
        if (e.code() != Exit::user) throw;
        note(fmt::format("there is no choice without it: {}", e.what()));
        return true;
      }
      tell_choice(p, *choice);
      if (!round(p, *choice, k)) return false;
      measure(*choice);
      if (divergence_ < least) continue;
      note(fmt::format("the choice before was better, by {:.6f} nats", divergence_ - least));
      scores_ = all;
      const model::compress::ChoiceProblem before = problem(1);
      const model::compress::Choice best = model::compress::choose(before, budget_);
      tell_choice(before, best);
      if (!round(before, best, k - 1)) return false;  // from what the work folder holds
      measure(best);
      return true;
    }
    return true;
  }

  // The chosen format of the fewest bits.
  FormatRef fewest_bits() const {
    FormatRef out;
    for (const Report::Tensor& t : report_.tensors) {
      const FormatRef f = model_.family->library().formats().find(t.format);
      if (f && (!out || f->bits_per_weight() < out->bits_per_weight())) out = f;
    }
    return out;
  }

  void finish() {
    for (const Report::Tensor& t : report_.tensors)
      put(fmt::format("{:<32} {:<16} {:>6.3f} bits  {}\n", t.name, t.format, t.bits, t.reason));
    if (report_.result)
      warn_if_broken(report_.result->quality, report_.result->bits, true, model_.family->library().formats());
    write_reports(flags_, report_);
    std::error_code gone;
    remove_tree(folder_, gone);
  }

  const model::arch::Model& model_;
  const std::string in_, out_;
  CalibratedFlags& flags_;
  const model::arch::LibraryRef library_;
  const model::compress::Budget budget_;
  run::Engine engine_;
  std::vector<FormatRef> candidates_;
  FormatRef fastest_;  // the format of --as-fast-as
  std::vector<std::string> names_;
  std::map<std::string, FormatRef> fixed_;  // formats of weights that are not chosen
  model::compress::ByLayersOptions options_;
  std::filesystem::path folder_;
  std::vector<model::text::TokenId> text_, held_;
  std::vector<model::compress::WeightScore> scores_;
  HighImpact cut_;
  std::vector<model::compress::ColumnGroup> groups_;  // weights whose columns may be split between two formats
  model::compress::RatioScores ratios_;
  std::vector<std::vector<size_t>> where_;  // the weight's index in ratios_, by block and item of the problem
  std::map<std::pair<std::string, std::string>, double> ms_;
  double divergence_ = 0, divergence_error_ = 0;
  Report report_;
};

}  // namespace

void check_budget(const Shared& shared, const CalibratedFlags& flags) {
  (void)model::compress::parse_budget(flags.budget);
  check_candidates(shared.library()->formats(), flags.candidates);
  if (!flags.as_fast_as.empty()) (void)named_format(shared.library()->formats(), flags.as_fast_as);
  if (!flags.high.empty()) (void)high_impact(shared.library()->formats(), flags);
  for (const std::string& name : flags.compared)
    if (!shared.library()->recipe(name)) (void)named_format(shared.library()->formats(), name);
  if (!flags.compared.empty() && flags.json.empty() && flags.html.empty())
    throw usage_error("--compare-formats is for a report: add --html or --json");
}

int quantize_by_budget(const Shared& shared, const model::arch::Model& model, const std::string& in,
                       const std::string& out, const model::compress::QuantizeOptions& what, CalibratedFlags& flags,
                       bool dry_run) {
  BudgetRun run(shared, model, in, out, what, flags);
  return dry_run ? run.say() : run.run();
}

}  // namespace lumen::cli
