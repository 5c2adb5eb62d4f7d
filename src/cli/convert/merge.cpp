// lumen merge BASE ADAPTER.. -o OUT
#include "model/compress/merge.h"

#include <unistd.h>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/protected.h"
#include "base/log.h"
#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/given_text.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/chat/chat.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/low_rank_weights.h"
#include "model/file/own_input.h"
#include "model/infer/measure/perplexity_divergence.h"
#include "model/recipe/record/lora_base.h"
#include "model/recipe/record/provenance.h"
#include "run/engine/stages.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

struct MergeFlags {
  std::string base, out, to, type = model::compress::MergeOptions::kBaseType, check;
  AdapterFlags adapters;
  std::vector<std::string> fallbacks;
  double scale = 1;
  std::optional<double> most;
  int64_t length = 0, windows = 8;
  bool no_check = false, overwrite = false;
};

// Holds the result in a hidden folder next to its destination until it has been checked.
class Staged {
 public:
  Staged(const fs::path& out, bool folder)
      : out_(written_path(out)), folder_(folder ? out : fs::path(out_.string() + ".unchecked")) {
    if (!folder) file_ = folder_.path() / out_.filename();
  }
  const fs::path& path() const { return file_.empty() ? folder_.path() : file_; }
  void commit() {
    if (file_.empty()) return folder_.commit();
    move_file(file_, out_);
  }

 private:
  fs::path out_, file_;  // `file_`: empty where the result is a folder
  AtomicFolder folder_;  // deleted where the result is a file
};

// The files that the adapters are read from.
model::file::Paths adapter_files(const AdapterFlags& flags) {
  model::file::Paths files;
  for (const std::string& given : flags.plain) {
    std::error_code failure;
    if (!fs::is_directory(given, failure)) {
      files.emplace_back(given);
      continue;
    }
    files.emplace_back(fs::path(given) / model::arch::kAdapterConfig);
    files.emplace_back(fs::path(given) / model::arch::kAdapterWeights);
  }
  return files;
}

std::vector<model::text::TokenId> check_text(const MergeFlags& flags, const model::arch::Model& model) {
  const std::string text = held_out_text(flags.check);
  return model::infer::perplexity_tokens(*model.tokenizer, text, model::infer::BosPlace::front);
}

void compare(run::Engine& engine, const model::arch::LibraryRef& library, const MergeFlags& flags,
             const model::arch::Model& base, const std::vector<model::arch::ScaledAdapter>& adapters,
             const fs::path& merged) {
  if (!base.tokenizer) {
    if (flags.most || !flags.check.empty())
      throw user_error("{} has no tokenizer, so the result cannot be checked on a text", flags.base);
    return note("not checked: the model has no tokenizer");
  }
  const std::vector<model::text::TokenId> text = check_text(flags, base);
  model::infer::PerplexityOptions options;
  options.exact = true;
  options.windows = flags.windows;
  options.length = flags.length;
  if (options.length == 0) options.length = std::min<int64_t>(512, base.integer("context"));
  options.bos = base.tokenizer->adds_bos();
  Progress progress;
  const AtomicFolder scratch(merged.parent_path() / "lumen-merge");  // deleted at the end
  const model::infer::Divergence d = model::infer::divergence_between(
      engine, base, adapters, model::arch::read_model(library, merged), text, options, scratch.path() / "logits",
      [&](int64_t done, int64_t all) { progress.update(fmt::format("check window {}/{}", done, all)); });
  progress.finish(fmt::format("check: {} tokens", d.tokens));
  put(fmt::format(
      "KL divergence from model and adapter {:.6f} +/- {:.6f} nats per token over {} tokens of {} (most "
      "{:.6f}); same likeliest token {:.3f} %\n",
      d.mean, d.error, d.tokens, flags.check.empty() ? "the built-in text" : flags.check, d.most, 100 * d.same_top));
  if (flags.most && !(d.mean <= *flags.most))
    throw Error(Exit::verify,
                fmt::format("the merged model is {:.6f} nats per token away from the model with its adapter; --max-kl "
                            "{} allows less. Nothing was written",
                            d.mean, *flags.most),
                "a format of more bits with --type, or training with --ship, which makes the merge exact");
}

// The provenance of the result: its base, adapters and options.
model::recipe::Provenance provenance_of(const MergeFlags& flags, const model::arch::Model& base,
                                        const model::file::Paths& inputs) {
  model::recipe::Provenance from;
  from.base = flags.base.starts_with("hf:") ? flags.base : fs::absolute(flags.base).lexically_normal().string();
  from.base_hash = model::arch::weights_hash(base).hex();
  const auto own = model::file::model_files(flags.base);
  for (const fs::path& path : inputs) {
    if (std::find(own.begin(), own.end(), path) != own.end()) continue;
    const MappedFile map(path);
    from.files.push_back({fs::absolute(path).lexically_normal().string(), map.bytes().size(),
                          hash_bytes(map.bytes().data(), map.bytes().size())});
  }
  from.formats = model::recipe::formats_of(base);
  from.compiler = run::compiler_version();
  return from;
}

int merge(const Shared& shared, MergeFlags& flags) {
  const bool gguf = flags.to.empty() ? fs::path(flags.out).extension() == ".gguf" : flags.to == "gguf";
  model::file::Paths inputs = model::file::model_files(flags.base);
  for (const fs::path& file : adapter_files(flags.adapters)) inputs.push_back(file);
  if (!flags.check.empty()) inputs.emplace_back(flags.check);
  std::error_code failure;
  if (!flags.overwrite &&
      (gguf ? fs::exists(flags.out, failure) : fs::exists(fs::path(flags.out) / "config.json", failure)))
    throw Error(Exit::user, fmt::format("'{}' is there already", flags.out), "name another place, or add --overwrite");
  const model::arch::LibraryRef library = shared.library();
  if (flags.type != model::compress::MergeOptions::kBaseType && !library->recipe(flags.type))
    (void)named_format(library->formats(), flags.type);
  for (const std::string& name : flags.fallbacks) (void)named_format(library->formats(), name);
  if (gguf)
    require_writable(flags.out);
  else
    require_writable_folder(flags.out);
  model::arch::Model base = model::arch::read_model(library, flags.base);
  if (base.tokenizer)
    if (const std::string trained = flags.adapters.chat_template(); !trained.empty())
      model::arch::take_chat(base, choose_chat("", flags.adapters, *base.tokenizer));
  std::vector<model::arch::ScaledAdapter> adapters = flags.adapters.read(base);
  for (model::arch::ScaledAdapter& s : adapters) s.scale *= flags.scale;
  if (const auto branches = model::arch::low_rank_branches(base); !branches.empty())
    note(fmt::format("{} weights have low-rank branches, which are kept", branches.size()));
  run::Engine engine = shared.engine();
  model::compress::MergeOptions options;
  options.type = flags.type;
  options.hugging_face = !gguf;
  options.fallbacks = flags.fallbacks;
  options.record = model::recipe::record_of(provenance_of(flags, base, inputs));
  model::compress::Merge job(engine, base, adapters, options);
  Staged staged(flags.out, !gguf);
  Progress progress;
  int64_t done = 0;
  const model::compress::MergeReport report = job.write(staged.path(), [&](const model::compress::MergedTensor& t) {
    progress.update(fmt::format("merge {} {}", ++done, t.name));
  });
  progress.finish(fmt::format("merge: {} tensors", report.tensors.size()));
  if (!gguf)
    model::recipe::write_run_file(staged.path(), provenance_of(flags, base, inputs), model::recipe::kFolderFiles);
  put(report.text());
  if (!flags.no_check) compare(engine, library, flags, base, adapters, staged.path());
  staged.commit();
  note(fmt::format("wrote {}", flags.out));
  return 0;
}

}  // namespace

void add_merge(CLI::App& app, Command& command) {
  auto flags = std::make_shared<MergeFlags>();
  CLI::App* sub = app.add_subcommand("merge", "Merge LoRA adapters into the weights of their model");
  add_settings(*sub, "--model", flags->base, "--lora", flags->adapters.plain, "--out", flags->out, "--to", flags->to,
               "--type", flags->type, "--scale", flags->scale, "--fallback", flags->fallbacks);
  auto* text = add_setting(*sub, "--check", flags->check);
  auto* most = add_setting(*sub, "--max-kl", flags->most);
  add_settings(*sub, "--ctx-size", flags->length, "--chunks", flags->windows);
  add_setting(*sub, "--no-check", flags->no_check)->excludes(text)->excludes(most);
  add_setting(*sub, "--overwrite", flags->overwrite);
  sub->footer([] {
    const std::string four = example_format(4.5);
    return fmt::format(
        "Each changed weight becomes W + scale * B A (with DoRA's magnitudes), rounded to its format. One weight at a\n"
        "time is in memory as f32.\n"
        "Examples:\n"
        "  lumen merge model.gguf tuned/adapter -o merged.gguf\n"
        "  lumen merge model.gguf one.gguf two.gguf=0.5 -o merged.gguf --type {}\n"
        "  lumen merge my-folder tuned/adapter -o merged-folder --type f32 --check held-out.txt --max-kl 0.001",
        four);
  });
  set_action(*sub, command, flags, merge);
}

}  // namespace lumen::cli
