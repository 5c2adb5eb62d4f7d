#include "cli/convert/calibrated.h"

#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/messages/remaining_time.h"
#include "base/stopwatch.h"
#include "cli/convert/activations.h"
#include "cli/convert/measured_result/measured_result.h"
#include "cli/measured_quality.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/held_formats.h"
#include "model/arch/low_rank_weights.h"
#include "model/file/own_input.h"
#include "model/infer/measure/perplexity.h"
#include "model/report/compression/compression.h"

namespace lumen::cli {
namespace {

// Perplexity on the calibration text, over the second halves of windows.
double perplexity_of(const std::vector<float>& losses, int64_t length) {
  double nats = 0;
  int64_t scored = 0;
  for (size_t begin = 0; begin < losses.size(); begin += length)
    for (int64_t t = length / 2; t + 1 < length; ++t, ++scored) nats += losses[begin + t];
  return std::exp(nats / std::max<int64_t>(scored, 1));
}

// The stored size, even for a weight that is not loaded.
int64_t stored_bytes(const model::arch::Model& model, const std::string& parameter) {
  return graph::byte_size(model.weights.at(parameter).type);
}

// The bits per weight that low-rank branches add.
std::string branches_text(const std::vector<model::compress::RoundedTensor>& rounded, const model::arch::Model& result,
                          const std::string& format) {
  int64_t rank = 0, count = 0;
  for (const model::compress::RoundedTensor& t : rounded) {
    count += t.rank > 0;
    rank = std::max(rank, t.rank);
  }
  double branches = 0, all = 0;
  for (const model::arch::Parameter& p : result.parameters) {
    const double bits = 8.0 * stored_bytes(result, p.name);
    all += bits;
    if (p.role == model::arch::kBranchRole) branches += bits;
  }
  const double weights = std::max<int64_t>(1, result.weight_count());
  return fmt::format("branches of rank {} in {} added to {} weights: {:.3f} of {:.3f} bits per weight\n", rank, format,
                     count, branches / weights, all / weights);
}

void add_activation_flags(CLI::App& sub, ActivationFlags& flags) {
  add_settings(sub, "--activations", flags.format, "--activation-scales", flags.scales, "--activation-reach",
               flags.reach, "--keep-spikes", flags.kept, "--spike-ratio", flags.spike_ratio, "--spike-gain",
               flags.spike_gain, "--keep-random", flags.random_seed, "--cache-type-k", flags.cache.keys,
               "--cache-type-v", flags.cache.values, "--cache-scales", flags.cache_scales);
}

}  // namespace

void add_calibrated_flags(CLI::App& sub, CalibratedFlags& flags) {
  add_setting(sub, "--strategy", flags.strategy)
      ->description(fmt::format("Round layer by layer; names between commas, the last one rounds{}",
                                model::compress::list_methods()));
  flags.add_flags(sub);
  add_settings(sub, "--damp-percent", flags.options.numbers.damping, "--desc-act", flags.options.numbers.act_order,
               "--iterations", flags.options.numbers.steps, "--rate", flags.options.numbers.rate, "--step-windows",
               flags.options.numbers.step_windows, "--smoothing-strength", flags.options.numbers.smoothing_strength,
               "--low-rank", flags.low_rank);
  add_setting(sub, "--low-rank-method", flags.low_rank_method)->check(CLI::IsMember(model::compress::branch_methods()));
  add_settings(sub, "--low-rank-format", flags.low_rank_format, "--budget", flags.budget, "--candidates",
               flags.candidates, "--criteria", flags.criteria, "--as-fast-as", flags.as_fast_as, "--score-chunks",
               flags.score_chunks, "--high-impact", flags.high, "--high-ratio", flags.high_ratios, "--experts",
               flags.experts.formats, "--expert-bits", flags.experts.bits, "--json", flags.json, "--html", flags.html,
               "--compare-formats", flags.compared, "--no-measure", flags.no_measure, "--work-folder", flags.folder,
               "--restart", flags.options.anew);
  add_activation_flags(sub, flags.activations);
}

void check_calibrated(const Shared& shared, const CalibratedFlags& flags) {
  (void)model::compress::parse_method(flags.strategy);
  (void)model::recipe::product_type(flags.precision, shared.library()->formats());
}

model::report::CompressionReport begin_report(const model::arch::Model& model, const std::string& in) {
  model::report::CompressionReport report;
  report.model = model.name.empty() ? in : model.name;
  report.created = today();
  report.base = {in, model.weight_bytes(), 8.0 * model.weight_bytes() / std::max<int64_t>(1, model.weight_count()), {}};
  return report;
}

namespace {

model::report::CompressionReport::Tensor& add_tensor(const model::arch::Parameter& p, const std::string& format,
                                                     int64_t bytes, model::report::CompressionReport* report) {
  model::report::CompressionReport::Tensor& t = report->tensors.emplace_back();
  t.name = p.gguf.empty() ? p.name : p.gguf;
  t.role = p.role;
  t.layer = graph::layer_of(p.name);
  t.format = format;
  t.bytes = bytes;
  t.bits = 8.0 * bytes / std::max<int64_t>(1, p.count());
  return t;
}

// Adds the result of each quantized tensor.
void add_tensors(const model::arch::Model& result, const std::vector<model::compress::RoundedTensor>& rounded,
                 model::report::CompressionReport* report) {
  for (const model::arch::Parameter& p : result.parameters)
    for (const model::compress::RoundedTensor& r : rounded) {
      if (r.name != (p.gguf.empty() ? p.name : p.gguf)) continue;
      int64_t bytes = stored_bytes(result, p.name);
      if (r.rank > 0)
        bytes +=
            stored_bytes(result, model::arch::branch_a(p.name)) + stored_bytes(result, model::arch::branch_b(p.name));
      auto& t = add_tensor(p, r.format, bytes, report);
      t.strategy = r.strategy;
      t.reason = r.remark;
      t.error = r.error;
      if (r.output_error >= 0) t.weighted_error = r.output_error;
    }
}

}  // namespace

model::report::CompressionReport report_of(const model::arch::Model& model, const std::string& in,
                                           const std::string& out, const model::compress::QuantizeReport& rounded) {
  model::report::CompressionReport report = begin_report(model, in);
  report.result = model::report::CompressionReport::Whole{out, rounded.bytes, rounded.bits, {}};
  for (const model::compress::QuantizedTensor& t : rounded.tensors)
    for (const model::arch::Parameter& p : model.parameters) {
      if (p.gguf != t.name || p.is_vector()) continue;
      auto& line = add_tensor(p, t.to, t.bytes, &report);
      line.strategy = t.weighed ? "importance" : "nearest";
      line.reason = t.remark;
      line.error = t.error;
      if (t.weighed) line.weighted_error = t.weighted;
    }
  report.notes = rounded.warnings();
  return report;
}

void draw_histograms(run::Engine& engine, const model::arch::Model& before, const model::arch::Model& after,
                     const model::arch::WeightSource& source, model::report::CompressionReport* report) {
  constexpr size_t kMost = 8;
  std::vector<model::report::CompressionReport::Tensor*> by_error;
  for (auto& t : report->tensors) by_error.push_back(&t);
  std::ranges::stable_sort(by_error, std::ranges::greater(),
                           [](const auto* t) { return model::report::error_of(*t).value_or(0); });
  by_error.resize(std::min(by_error.size(), kMost));
  for (const model::arch::Parameter& p : before.parameters)
    for (auto* t : by_error)
      if (t->name == (p.gguf.empty() ? p.name : p.gguf) && after.weights.contains(p.name))
        t->histogram =
            model::report::histogram_of(model::compress::values_of(engine, before.weights.at(p.name)),
                                        model::compress::values_of(engine, model::arch::fetched(after, p, source)));
}

void write_reports(const CalibratedFlags& flags, const model::report::CompressionReport& report) {
  if (!flags.json.empty()) write_file_atomic(flags.json, model::report::compression_json(report));
  if (!flags.html.empty()) write_file_atomic(flags.html, model::report::html_report(report));
}

std::string table_of(const std::vector<model::compress::RoundedTensor>& tensors) {
  std::string out =
      fmt::format("{:<32} {:<14} {:<12} {:>10} {:>12}\n", "tensor", "format", "strategy", "rel. error", "of outputs");
  std::string remarks;
  for (const model::compress::RoundedTensor& t : tensors) {
    out += fmt::format("{:<32} {:<14} {:<12} {:>10.5f} {:>12}\n", t.name, t.format, t.strategy, t.error,
                       t.output_error < 0 ? "-" : fmt::format("{:.5f}", t.output_error));
    if (!t.remark.empty()) remarks += fmt::format("  {}: {}\n", t.name, t.remark);
  }
  return out + (remarks.empty() ? "" : "remarks:\n" + remarks);
}

model::compress::ByLayersOptions by_layers_options(const model::arch::Model& model, const CalibratedFlags& flags) {
  model::compress::ByLayersOptions o = flags.options;
  o.method = model::compress::parse_method(flags.strategy);
  o.run = flags.run;
  o.branch.rank = flags.low_rank;
  o.branch.method = model::compress::branch_method(flags.low_rank_method);
  const FormatRef branch = named_format(model.family->library().formats(), flags.low_rank_format);
  o.branch.format = model::arch::is_plain(*branch, Scalar::f32) ? nullptr : branch;
  o.identity = std::make_shared<model::arch::ModelIdentity>(model);
  o.source = flags.cut;
  return o;
}

bool run_by_layers(model::compress::ByLayers& run, const std::filesystem::path& folder) {
  const Stopwatch watch;
  Progress progress;
  catch_interrupts();
  std::optional<RemainingTime> time;
  const bool whole = run.run(
      [&](const model::compress::ByLayersProgress& p) {
        if (!time && p.part > 0)
          note(fmt::format("going on with part {} of {}, from '{}'", p.part + 1, p.parts, folder.string()));
        if (!time) time.emplace(p.parts);
        const double left = time->left(p.part, p.share, watch.seconds());
        progress.update(fmt::format("quantize part {}/{} {:.0f}% {} | {:.0f} s left", p.part + 1, p.parts,
                                    100 * p.share, p.doing, left));
      },
      [] { return interrupted().load(); });
  if (!whole) {
    progress.finish("quantize: stopped");
    note(fmt::format("the work so far is in '{}'; the same command continues it", folder.string()));
    return false;
  }
  progress.finish(run.losses().empty()
                      ? "quantize: done"
                      : fmt::format("quantize: perplexity {:.4f} of the quantized model on the calibration text",
                                    perplexity_of(run.losses(), run.window())));
  return true;
}

int quantize_by_layers(const Shared& shared, model::arch::Model model, const std::string& in,
                       model::arch::Destination to, const model::compress::QuantizeOptions& what,
                       CalibratedFlags& flags) {
  model::compress::QuantizeReport chosen;
  run::Engine engine = shared.engine();
  std::map<std::string, FormatRef> formats = model::compress::choose_formats(model, what, &chosen);
  if (what.train_tables) model::compress::train_formats(engine, model, what, formats, chosen);
  const Stopwatch watch;
  std::vector<model::text::TokenId> text = flags.read(model);
  const ResultText held = held_out(flags, text);
  if (!flags.activations.format.empty()) model::arch::set_encoded_inputs(model, {});  // new formats replace them
  ActivationWork activations(engine, flags.activations, model.family->library().formats());
  activations.keep_spikes(model, {}, text, flags.run, &formats);
  model::compress::ByLayersOptions o = by_layers_options(model, flags);
  o.folder = flags.folder.empty() ? (to.path / "").parent_path().string() + ".work" : flags.folder;
  model::compress::ByLayers run(engine, model, formats, text, o);
  model::arch::require_writable_as(run.outline(), to.form);
  if (!run_by_layers(run, o.folder)) return exit_code(Exit::interrupted);
  put(table_of(run.report()));
  if (flags.low_rank > 0) put(branches_text(run.report(), run.outline(), flags.low_rank_format));
  for (const std::string& line : chosen.trained) put("tables: " + line + "\n");
  to.file_type = chosen.file_type;
  model::arch::Model result = run.outline();
  const model::arch::WeightSource source = [&](const model::arch::Parameter& p) { return run.weight(p); };
  activations.calibrate(&result, source, text, flags.run);
  model::report::CompressionReport report = begin_report(model, in);
  report.device = engine.device().describe();
  report.text = "calibrated on " + flags.names();
  int64_t bytes = 0;  // includes weights that are read from the journal
  for (const model::arch::Parameter& p : result.parameters) bytes += stored_bytes(result, p.name);
  report.result = model::report::CompressionReport::Whole{
      to.path.string(), bytes, 8.0 * bytes / std::max<int64_t>(1, model.weight_count()), {}};
  report.experts = flags.classes;
  add_tensors(result, run.report(), &report);
  // Preparations change the weights that errors are compared with, and low-rank branches are part of the result.
  const bool draws = (!flags.json.empty() || !flags.html.empty()) && !o.branch.are_wanted();
  if (draws && o.method.preparations.empty()) draw_histograms(engine, model, result, source, &report);
  activations.tell(result, to.path.string(), &report);
  model::arch::write_model(result, to, source);
  report.stages.push_back({"rounding", watch.seconds()});
  run.remove_folder();
  note(fmt::format("wrote {}", to.path.string()));
  if (!flags.no_measure) measure_result(shared, {in, to, held, {}, o.method.learns_from_text()}, report);
  write_reports(flags, report);
  return 0;
}

int quantize_activations(const Shared& shared, model::arch::Model model, const std::string& in,
                         const model::arch::Destination& to, CalibratedFlags& flags) {
  run::Engine engine = shared.engine();
  if (flags.activations.drops) model::arch::forget_held_formats(model);
  ActivationWork activations(engine, flags.activations, model.family->library().formats());
  std::vector<model::text::TokenId> text;
  ResultText held;
  if (flags.activations.need_text()) {
    text = flags.read(model);
    held = held_out(flags, text);
  }
  activations.calibrate(&model, {}, text, flags.run);
  model::arch::require_writable_as(model, to.form);
  model::report::CompressionReport report = begin_report(model, in);
  activations.tell(model, to.path.string(), &report);
  model::arch::write_model(model, to);
  note(fmt::format("wrote {}", to.path.string()));
  if (!flags.no_measure) measure_result(shared, {in, to, std::move(held), {}, true}, report);
  write_reports(flags, report);
  return 0;
}

}  // namespace lumen::cli
