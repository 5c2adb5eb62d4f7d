#include "cli/repair/repair_flags.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file/file.h"
#include "cli/given_text.h"
#include "cli/numbers.h"
#include "cli/paths/paths.h"
#include "model/arch/checkpoint/read.h"

namespace lumen::cli {

void RepairFlags::add_models(CLI::App& sub) {
  sub.add_option("original", original, "The model before quantization: GGUF file, Hugging Face folder, or hf:USER/REPO")
      ->check(reads(Reads::model))
      ->required()
      ->type_name("ORIGINAL");
  sub.add_option("quantized", rounded, "The same model, quantized")
      ->check(reads(Reads::model))
      ->required()
      ->type_name("QUANTIZED");
}

void RepairFlags::add_check(CLI::App& sub, const char* out_name) {
  auto* held_out = sub.add_option("--check", check,
                                  "Held-out text on which the divergence from the original is measured; the default is "
                                  "the end of the built-in text")
                       ->check(reads(Reads::data))
                       ->type_name("TEXT");
  sub.add_option("--check-chunks", windows, "Windows of the check; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  sub.add_flag("--no-check", no_check, "Do not measure the result")->excludes(held_out);
  sub.add_flag("--overwrite", overwrite, fmt::format("Replace an existing {}; inputs are never replaced", out_name));
}

void RepairFlags::refuse_outputs(bool is_file) const {
  std::error_code failure;
  if (!overwrite && std::filesystem::exists(out, failure))
    throw Error(Exit::user, fmt::format("'{}' is there already", out), "choose another path, or add --overwrite");
  if (is_file)
    require_writable(out);
  else
    require_writable_folder(out);
}

std::vector<model::TokenId> RepairFlags::check_tokens(const model::Model& base) const {
  return model::perplexity_tokens(*base.tokenizer, held_out_text(check), model::bos_place(text.bos));
}

model::PerplexityOptions RepairFlags::check_options(const model::Model& base) const {
  model::PerplexityOptions options;
  options.exact = true;
  options.windows = windows;
  options.length = std::min(text.run.length, base.integer("context"));
  options.bos = text.bos != "none" && base.tokenizer->adds_bos();
  return options;
}

}  // namespace lumen::cli
