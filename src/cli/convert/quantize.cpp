// lumen quantize IN OUT TYPE [threads]
#include "model/compress/quantize.h"

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/convert/activations.h"
#include "cli/convert/budget.h"
#include "cli/convert/calibrated.h"
#include "cli/convert/high_impact.h"
#include "cli/convert/measured_result/measured_result.h"
#include "cli/convert/recipe_options.h"
#include "cli/names.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/paths/paths.h"
#include "cli/pictures/tower_note.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/packed/pack.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/held_formats.h"
#include "model/file/own_input.h"
#include "model/report/compression/compression.h"

namespace lumen::cli {
namespace {

struct QuantizeFlags {
  std::string in, out, type, recipe, importance, form = model::arch::Destination::kGguf, split, shard;
  int threads = -1;
  std::vector<std::string> tensor_types;
  model::compress::QuantizeOptions options;
  bool dry_run = false, overwrite = false;
  CalibratedFlags calibrated;
};

void write(const Shared& shared, const QuantizeFlags& flags, model::compress::Quantizer& job,
           model::arch::Destination to) {
  run::Engine engine = shared.engine();
  if (flags.options.train_tables) job.train_tables(engine);
  if (flags.options.importance) {  // metadata keys that other programs read, too
    const model::calibrate::Importance& from = *flags.options.importance;
    model::file::GgufMetadata& metadata = job.result().metadata;
    metadata.set("quantize.imatrix.file", flags.importance);
    if (!from.datasets.empty()) metadata.set("quantize.imatrix.dataset", from.datasets.back());
    metadata.set("quantize.imatrix.entries_count", static_cast<uint32_t>(from.entries.size()));
    metadata.set("quantize.imatrix.chunks_count", static_cast<uint32_t>(from.windows));
  }
  to.file_type = job.report().file_type;
  Progress progress;
  int64_t done = 0;
  const size_t all = job.result().parameters.size();
  job.write(engine, to, [&](const model::compress::QuantizedTensor& t) {
    if (interrupted().load()) throw Error(Exit::interrupted, "stopped; nothing was written");
    progress.update(fmt::format("quantize {}/{} {}", ++done, all, t.name));
  });
  const model::compress::QuantizeReport& report = job.report();
  progress.finish(fmt::format("quantize: {} tensors, {:.3f} bits per weight", report.tensors.size(), report.bits));
}

// Checks the options that --activations combines with: it needs a calibration text, and only GGUF files and packed
// folders have metadata keys for its result.
void require_activations(const QuantizeFlags& flags, bool by_budget, const model::arch::Destination& to) {
  if (by_budget)
    throw usage_error("--budget chooses formats of weights; run --activations on its output, without TYPE");
  const ActivationFlags& a = flags.calibrated.activations;
  if (to.form == model::arch::Destination::kFolder)
    throw usage_error("formats of activations are written to GGUF files and folders of packed weights alone");
  if (!to.is_gguf() && (!a.cache.keys.empty() || !a.cache.values.empty())) {
    if (a.cache_scales != "static")
      throw usage_error(
          "formats of caches that are fitted while the model runs are written to GGUF files alone: add --cache-scales "
          "static for a folder");
    if (a.cache.keys != a.cache.values)
      throw usage_error("a folder has one format for keys and values: --cache-type-k and --cache-type-v");
  }
  if (flags.dry_run) throw usage_error("--dry-run prints sizes of weights: it does not go with --activations");
  if (flags.type.empty() && !a.kept.empty()) throw usage_error("--keep-spikes needs TYPE: it keeps weights, too");
}

void require_low_rank(const QuantizeFlags& flags, bool by_budget) {
  if (flags.calibrated.low_rank == 0) return;
  if (by_budget) throw usage_error("--budget chooses formats of weights alone: --low-rank goes with TYPE");
  if (flags.dry_run) throw usage_error("--dry-run prints only sizes of weights: it does not go with --low-rank");
}

// Refuses options that cannot be combined with --experts.
void require_experts_alone(const QuantizeFlags& flags) {
  if (!flags.calibrated.budget.empty()) throw usage_error("--budget chooses formats of its own: leave out --experts");
  if (!flags.calibrated.high.empty()) throw usage_error("--experts and --high-impact do not cut the same model");
  if (flags.dry_run)
    throw usage_error("--dry-run computes nothing, but classes of experts depend on a calibration text");
  if (flags.form != model::arch::Destination::kGguf && flags.form != model::arch::Destination::kFolder)
    throw usage_error("folders of packed weights cannot store experts in parts");
  if (flags.calibrated.activations.are_given())
    throw usage_error("run --activations on the output of --experts, without TYPE");
}

int write_rounded(const Shared& shared, QuantizeFlags& flags, const model::arch::Model& model,
                  model::compress::Quantizer& job, const model::arch::Destination& to) {
  model::arch::require_writable_as(job.result(), to.form);
  if (!flags.dry_run) write(shared, flags, job, to);
  put(job.report().text());
  for (const std::string& warning : job.report().warnings()) warn(warning);
  if (flags.dry_run) return 0;
  model::report::CompressionReport report = report_of(model, flags.in, flags.out, job.report());
  report.experts = flags.calibrated.classes;
  note(fmt::format("wrote {}", flags.out));
  if (!flags.calibrated.no_measure) measure_result(shared, {flags.in, to, {}, flags.calibrated.texts, false}, report);
  write_reports(flags.calibrated, report);
  return 0;
}

int quantize_experts(const Shared& shared, QuantizeFlags& flags, const model::arch::Destination& to) {
  CalibratedFlags& calibrated = flags.calibrated;
  const model::arch::Model whole = model::arch::read_model(shared.library(), flags.in);
  ExpertChoice choice = with_expert_classes(shared, whole, flags.options, flags.out, calibrated, calibrated.experts);
  calibrated.cut = choice.cut;
  calibrated.classes = std::move(choice.experts);
  put(table_of(calibrated.classes));
  if (!calibrated.strategy.empty())
    return quantize_by_layers(shared, choice.model, flags.in, to, flags.options, calibrated);
  model::compress::Quantizer job(choice.model, flags.options);
  return write_rounded(shared, flags, choice.model, job, to);
}

int quantize_file(const Shared& shared, QuantizeFlags& flags) {
  for (const std::string& pair : flags.tensor_types) {
    const size_t at = pair.rfind('=');
    if (at == std::string::npos || at == 0 || at + 1 == pair.size()) {
      throw usage_error("--tensor-type takes REGEX=FORMAT, not '{}'", pair);
    }
    flags.options.tensor_types.emplace_back(pair.substr(0, at), pair.substr(at + 1));
  }
  flags.options.target = flags.type;
  model::arch::Destination to{flags.out, flags.form, 0, -1};
  if (!flags.split.empty() && !to.is_gguf()) throw usage_error("--split-max-size is for GGUF files");
  if (!flags.shard.empty() && to.is_gguf()) throw usage_error("--max-shard-size is for folders");
  to.part_bytes = size_of(to.is_gguf() ? flags.split : flags.shard);
  flags.options.stacked = model::arch::takes_stacked_alone(flags.form);
  flags.options.linear_layers = !to.is_gguf() && flags.form != model::arch::Destination::kFolder;
  // Reports errors before the work.
  const model::arch::LibraryRef library = shared.library();
  const bool by_budget = !flags.calibrated.budget.empty();
  if (by_budget && !flags.type.empty()) throw usage_error("--budget chooses formats: '{}' is one too many", flags.type);
  if (by_budget && (!to.is_gguf() || to.part_bytes > 0)) throw usage_error("--budget writes one GGUF file");
  ActivationFlags& activations = flags.calibrated.activations;
  activations.drops = activations.format == "none";
  if (activations.drops) activations.format.clear();
  check_activations(shared, activations);
  if (activations.are_given()) require_activations(flags, by_budget, to);
  if (!to.is_gguf() && !activations.format.empty()) {
    model::arch::HeldFormat held{named_format(library->formats(), activations.format), {}};
    if (activations.scales == "static") held.scale = 1;
    model::arch::Packing::require_input(to.form, library->formats(), "the layers' inputs", held);
  }
  if (!to.is_gguf() && !activations.cache.keys.empty())
    model::arch::Packing::require_cache(to.form, library->formats(),
                                        {named_format(library->formats(), activations.cache.keys), 1.0});
  const auto read = [&] {
    model::arch::Model in = model::arch::read_model(library, flags.in);
    if (activations.drops) model::arch::forget_held_formats(in);
    return in;
  };
  const bool weights_stay =
      (activations.are_given() || activations.drops) && flags.type.empty() && flags.calibrated.strategy.empty();
  if (!by_budget && !weights_stay && flags.type.empty())
    throw usage_error("TYPE is missing: a format, a mixture, --budget, or --activations alone");
  if (!by_budget && !weights_stay && !library->recipe(flags.type)) (void)named_format(library->formats(), flags.type);
  for (const std::string& name : {flags.options.output_type, flags.options.embedding_type})
    if (!name.empty()) (void)named_format(library->formats(), name);
  for (const std::string& name : flags.options.fallbacks) (void)named_format(library->formats(), name);
  for (const auto& [pattern, name] : flags.options.tensor_types) (void)named_format(library->formats(), name);
  if (!flags.dry_run && to.is_gguf()) require_writable(flags.out);
  if (!flags.dry_run && !to.is_gguf()) require_writable_folder(flags.out);
  if (weights_stay && flags.calibrated.low_rank > 0)
    throw usage_error("--low-rank needs weights that are quantized: TYPE is missing");
  if (weights_stay) return quantize_activations(shared, read(), flags.in, to, flags.calibrated);
  require_low_rank(flags, by_budget);
  if ((activations.are_given() || flags.calibrated.low_rank > 0) && flags.calibrated.strategy.empty())
    flags.calibrated.strategy = "rtn";
  const bool by_layers = !flags.calibrated.strategy.empty() && !flags.dry_run;
  if (by_layers) check_calibrated(shared, flags.calibrated);
  if (by_budget) check_budget(shared, flags.calibrated);
  const bool cuts = !flags.calibrated.high.empty();
  if (!flags.calibrated.high_ratios.empty() && !cuts) throw usage_error("--high-ratio is a share of --high-impact");
  if (cuts && !by_budget) check_high_impact(shared, flags.calibrated);
  const ExpertFlags& experts = flags.calibrated.experts;
  check_experts(shared, experts);
  if (experts.are_given()) require_experts_alone(flags);
  if (!flags.importance.empty())
    flags.options.importance = std::make_shared<model::calibrate::Importance>(
        model::calibrate::read_importance(flags.importance, library->formats()));
  if (by_budget)
    return quantize_by_budget(shared, read(), flags.in, flags.out, flags.options, flags.calibrated, flags.dry_run);
  if (experts.are_given()) return quantize_experts(shared, flags, to);
  if (by_layers && !cuts) return quantize_by_layers(shared, read(), flags.in, to, flags.options, flags.calibrated);
  model::arch::StreamedModel in;
  if (cuts)
    in.model = with_high_impact(shared, read(), flags.options, flags.out, flags.calibrated, flags.dry_run);
  else
    in = model::arch::stream_model(library, flags.in);
  if (activations.drops) model::arch::forget_held_formats(in.model);
  if (by_layers) return quantize_by_layers(shared, in.model, flags.in, to, flags.options, flags.calibrated);
  model::compress::Quantizer job(in.model, flags.options, in.source);
  return write_rounded(shared, flags, in.model, job, to);
}

}  // namespace

void add_quantize(CLI::App& app, Command& command) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* sub =
      app.add_subcommand("quantize", "Quantize a model's weights to a number format, or to a mixture of formats");
  add_settings(*sub, "input", flags->in, "output", flags->out, "--overwrite", flags->overwrite, "type", flags->type);
  auto* threads = add_setting(*sub, "nthreads", flags->threads);
  add_setting(*sub, "--output-format", flags->form)->check(CLI::IsMember(model::arch::output_forms()));
  add_settings(*sub, "--split-max-size", flags->split, "--max-shard-size", flags->shard, "--tensor-type",
               flags->tensor_types);
  auto* output = add_setting(*sub, "--output-tensor-type", flags->options.output_type);
  auto* embedding = add_setting(*sub, "--token-embedding-type", flags->options.embedding_type);
  add_settings(*sub, "--recipe", flags->recipe, "--imatrix", flags->importance, "--fallback", flags->options.fallbacks);
  add_setting(*sub, "--pure", flags->options.pure)->excludes(output)->excludes(embedding);
  add_setting(*sub, "--leave-output-tensor", flags->options.leave_output)->excludes(output);
  add_settings(*sub, "--train-tables", flags->options.train_tables, "--allow-requantize",
               flags->options.allow_requantize);
  add_calibrated_flags(*sub, flags->calibrated);
  add_setting(*sub, "--dry-run", flags->dry_run);
  sub->footer([] {
    const std::string four = example_format(4.5), five = example_format(5.5), eight = example_format(8.5);
    return fmt::format(
        "{}\n\n"
        "Vectors (norms) stay f32. Names may be in upper case. --formats DIR adds your own formats.\n"
        "Examples:\n"
        "  lumen quantize model-f32.gguf model-{}.gguf {}\n"
        "  lumen quantize model.gguf out.gguf {} 8 --fallback {}\n"
        "  lumen quantize model.gguf out.gguf {} --tensor-type 'ffn_down={}' --output-tensor-type {}",
        format_names(), four, four, five, eight, four, five, eight);
  });
  add_shared_flags(*sub, command.shared);
  threads->excludes(sub->get_option("--threads"));
  sub->callback([flags, sub, &command] {
    command.action = [flags, sub, shared = command.shared] {
      std::optional<PathGuard> of_recipe;
      if (!flags->recipe.empty()) {
        take_recipe(*sub, *shared->library(), flags->recipe);
        of_recipe.emplace(*sub);  // the recipe may name files, too
      }
      if (flags->threads > 0) shared->threads = flags->threads;
      const int status = quantize_file(*shared, *flags);
      if (status == 0 && !flags->dry_run) note_tower(shared->library(), flags->in, flags->out);
      return status;
    };
  });
}

}  // namespace lumen::cli
