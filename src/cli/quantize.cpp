// lumen quantize IN OUT TYPE [threads]
#include "model/compress/quantize.h"

#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/names.h"
#include "model/arch/read.h"
#include "model/arch/write.h"

namespace lumen::cli {
namespace {

struct Flags {
  std::string in, out, type;
  int threads = -1;
  std::vector<std::string> tensor_types;
  model::QuantizeOptions options;
  bool dry_run = false;
};

int quantize_file(const Shared& shared, Flags& flags) {
  for (const std::string& pair : flags.tensor_types) {
    const size_t at = pair.rfind('=');
    if (at == std::string::npos || at == 0 || at + 1 == pair.size()) {
      throw usage_error("--tensor-type takes REGEX=FORMAT, not '{}'", pair);
    }
    flags.options.tensor_types.emplace_back(pair.substr(0, at), pair.substr(at + 1));
  }
  flags.options.target = flags.type;
  const model::Model model = model::read_model(shared.library(), flags.in);
  run::Engine engine = shared.engine();
  model::QuantizeReport report;
  Progress progress;
  int64_t done = 0;
  const model::Model out = model::quantize(engine, model, flags.options, &report, [&](const model::QuantizedTensor& t) {
    progress.update(fmt::format("quantize {}/{} {}", ++done, model.parameters.size(), t.name));
  });
  progress.finish(fmt::format("quantize: {} tensors, {:.3f} bits per weight", report.tensors.size(), report.bits));
  std::fputs(report.text().c_str(), stdout);
  if (flags.dry_run) return 0;
  model::write_gguf(out, flags.out, report.file_type);
  note(fmt::format("wrote {}", flags.out));
  return 0;
}

}  // namespace

void add_quantize(CLI::App& app, Command& command) {
  auto flags = std::make_shared<Flags>();
  CLI::App* sub =
      app.add_subcommand("quantize", "Round a model's weights to a number format, or to a mixture of formats");
  sub->add_option("input", flags->in, "GGUF file, or a Hugging Face folder")->required()->type_name("IN");
  sub->add_option("output", flags->out, "GGUF file to write")->required()->type_name("OUT");
  sub->add_option("type", flags->type, "Format or mixture; the names are below")->required()->type_name("TYPE");
  sub->add_option("nthreads", flags->threads, "Threads")->type_name("N")->check(CLI::Range(1, 4096));
  sub->add_option("--tensor-type", flags->tensor_types, "Format of the tensors a regular expression finds; repeatable")
      ->type_name("REGEX=FORMAT");
  sub->add_option("--output-tensor-type", flags->options.output_type, "Format of the output matrix")
      ->type_name("FORMAT");
  sub->add_option("--token-embedding-type", flags->options.embedding_type, "Format of the token embedding")
      ->type_name("FORMAT");
  sub->add_option("--fallback", flags->options.fallbacks,
                  "Format to take where a tensor's rows do not divide into blocks; repeatable, tried in order. Without "
                  "it such a "
                  "tensor is an error")
      ->type_name("FORMAT");
  sub->add_flag("--pure", flags->options.pure, "The same format for every matrix");
  sub->add_flag("--leave-output-tensor", flags->options.leave_output, "Do not touch the output matrix");
  sub->add_flag("--allow-requantize", flags->options.allow_requantize, "Start from weights that are already rounded");
  sub->add_flag("--dry-run", flags->dry_run, "Report, but write nothing");
  sub->footer([] {
    const std::string four = example_format(4.5), five = example_format(5.5), eight = example_format(8.5);
    return fmt::format(
        "{}\n\n"
        "Vectors (norms) stay f32. Upper case is fine. With --formats DIR your own formats take part.\n"
        "Examples:\n"
        "  lumen quantize model-f32.gguf model-{}.gguf {}\n"
        "  lumen quantize model.gguf out.gguf {} 8 --fallback {}\n"
        "  lumen quantize model.gguf out.gguf {} --tensor-type 'ffn_down={}' --output-tensor-type {}",
        format_names(), four, four, five, eight, four, five, eight);
  });
  add_shared_flags(*sub, command.shared);
  sub->callback([flags, &command] {
    command.action = [flags, shared = command.shared] {
      if (flags->threads > 0) shared->threads = flags->threads;
      return quantize_file(*shared, *flags);
    };
  });
}

}  // namespace lumen::cli
