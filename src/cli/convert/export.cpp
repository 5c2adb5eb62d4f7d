// lumen export IN OUT
#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/names.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"
#include "model/file/own_input.h"

namespace lumen::cli {
namespace {

struct ExportFlags {
  std::string in, out, to, type;
  std::string split;
  bool overwrite = false;
};

// "4G", "500M", "1000000"
int64_t size_of(const std::string& text) {
  if (text.empty()) return 0;
  size_t used = 0;
  int64_t n = 0;
  try {
    n = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  int64_t unit = 0;
  if (used == text.size()) unit = 1;
  if (used + 1 == text.size() && (text.back() == 'G' || text.back() == 'g')) unit = 1'000'000'000;
  if (used + 1 == text.size() && (text.back() == 'M' || text.back() == 'm')) unit = 1'000'000;
  if (used == 0 || unit == 0 || n < 1 || n > INT64_MAX / unit)
    throw usage_error("'{}' is no size; e.g. 4G or 500M", text);
  return n * unit;
}

int export_model(const Shared& shared, const ExportFlags& flags) {
  const bool gguf = flags.to.empty() ? std::filesystem::path(flags.out).extension() == ".gguf" : flags.to == "gguf";
  const int64_t split = size_of(flags.split);
  if (split > 0 && !gguf) throw usage_error("--split-max-size is for GGUF files");
  if (!flags.overwrite) {
    model::refuse_own_input(model::model_files(flags.in),
                            gguf ? model::replaced_by_gguf(flags.out, split > 0) : model::replaced_by_folder(flags.out),
                            "name another place, or add --overwrite: what is there will be gone");
  }
  const model::LibraryRef library = shared.library();
  const FormatRef type = flags.type.empty() ? nullptr : named_format(library->formats(), flags.type);
  if (gguf) {
    require_writable(flags.out);
  } else {
    require_writable_folder(flags.out);
  }
  model::Model model = model::read_model(library, flags.in);
  std::vector<std::string> unknown;
  for (const auto& [name, w] : model.weights)
    if (!w.is_f32() && w.type.element.format->safetensors_type.empty()) unknown.push_back(w.type.element.format->name);
  if (type) {
    run::Engine engine = shared.engine();
    model::QuantizeReport report;
    model = model::with_floats(engine, model, type, &report);
    for (const std::string& warning : report.warnings()) warn(warning);
  } else if (!gguf && !unknown.empty()) {
    throw Error(Exit::user,
                fmt::format("weights in the format '{}' have no place in a Hugging Face folder", unknown.front()),
                "add --type with a float format to decode them, or write a GGUF file");
  }
  if (gguf)
    model::write_gguf(model, flags.out, -1, split);
  else
    model::write_hf(model, flags.out);
  note(fmt::format("wrote {}", flags.out));
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* sub = app.add_subcommand("export", "Write a model as a GGUF file or a Hugging Face folder");
  sub->add_option("input", flags->in, "GGUF file, Hugging Face folder, or hf:USER/REPO")->required()->type_name("IN");
  sub->add_option("output", flags->out, "NAME.gguf, or a folder")->required()->type_name("OUT");
  sub->add_option("--to", flags->to, "What to write; by default what the name says")
      ->check(CLI::IsMember({"gguf", "hf"}));
  sub->add_option("--type", flags->type, "Float format all matrices are decoded to")->type_name("FORMAT");
  sub->add_option("--split-max-size", flags->split, "Several GGUF files of at most about this size")->type_name("SIZE");
  sub->add_flag("--overwrite", flags->overwrite, "OUT may be IN or a part of it; other files are replaced without it");
  sub->footer(
      "Config, tokenizer, chat template and defaults of generation go along. Rounded weights stay as they are.\n"
      "Examples:\n"
      "  lumen export my-model model.gguf\n"
      "  lumen export model.gguf my-model --type f32\n"
      "  lumen export hf:user/repo model.gguf --split-max-size 4G");
  add_shared_flags(*sub, command.shared);
  sub->callback([flags, &command] {
    command.action = [flags, shared = command.shared] { return export_model(*shared, *flags); };
  });
}

}  // namespace lumen::cli
