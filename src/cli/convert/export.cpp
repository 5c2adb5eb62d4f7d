// lumen export IN OUT
#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/names.h"
#include "cli/numbers.h"
#include "cli/pictures/tower_note.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"

namespace lumen::cli {
namespace {

struct ExportFlags {
  std::string in, out, to, type;
  std::string split, shard;
  bool overwrite = false;
};

int export_model(const Shared& shared, const ExportFlags& flags) {
  model::arch::Destination to{flags.out, flags.to, 0, -1};
  const bool named_file = std::filesystem::path(flags.out).extension() == ".gguf";
  if (flags.to.empty()) to.form = named_file ? model::arch::Destination::kGguf : model::arch::Destination::kFolder;
  const bool gguf = to.is_gguf(), packs = !gguf && to.form != model::arch::Destination::kFolder;
  const int64_t split = size_of(flags.split);
  if (split > 0 && !gguf) throw usage_error("--split-max-size is for GGUF files");
  if (!flags.shard.empty() && gguf) throw usage_error("--max-shard-size is for folders");
  if (packs && !flags.type.empty()) throw usage_error("--type is for floats, but '{}' packs weights", to.form);
  to.part_bytes = gguf ? split : size_of(flags.shard);
  const model::arch::LibraryRef library = shared.library();
  const FormatRef type = flags.type.empty() ? nullptr : named_format(library->formats(), flags.type);
  if (type && !model::compress::is_float_format(*type))
    throw usage_error("'{}' is no float format; `lumen quantize` converts to other formats", type->name);
  if (gguf) {
    require_writable(flags.out);
  } else {
    require_writable_folder(flags.out);
  }
  const model::arch::StreamedModel in = model::arch::stream_model(library, flags.in);
  if (type) {
    model::compress::QuantizeOptions options;
    options.target = type->name;
    options.pure = options.small_too = options.allow_requantize = true;
    model::compress::Quantizer job(in.model, options, in.source);
    model::arch::require_writable_as(job.result(), to.form);
    run::Engine engine = shared.engine();
    job.write(engine, to);
    for (const std::string& warning : job.report().warnings()) warn(warning);
  } else {
    model::arch::require_writable_as(in.model, to.form);
    model::arch::write_model(in.model, to, in.source);
  }
  note(fmt::format("wrote {}", flags.out));
  note_tower(library, flags.in, flags.out);
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* sub = app.add_subcommand("export", "Write a model as a GGUF file or a Hugging Face folder");
  add_settings(*sub, "input", flags->in, "output", flags->out);
  add_setting(*sub, "--to", flags->to)->check(CLI::IsMember(model::arch::output_forms()));
  add_settings(*sub, "--type", flags->type, "--split-max-size", flags->split, "--max-shard-size", flags->shard,
               "--overwrite", flags->overwrite);
  sub->footer(
      "Config, tokenizer, chat template and generation defaults are copied. Quantized weights keep their format; a "
      "folder\n"
      "of packed weights keeps the formats that it supports.\n"
      "Examples:\n"
      "  lumen export my-model model.gguf\n"
      "  lumen export model.gguf my-model --type f32\n"
      "  lumen export hf:user/repo model.gguf --split-max-size 4G");
  set_action(*sub, command, flags, export_model);
}

}  // namespace lumen::cli
