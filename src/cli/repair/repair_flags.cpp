#include "cli/repair/repair_flags.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file/file.h"
#include "cli/given_text.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"

namespace lumen::cli {

void RepairFlags::add_models(CLI::App& sub) {
  add_settings(sub, "original", original, "quantized", rounded);
}

void RepairFlags::add_check(CLI::App& sub) {
  auto* held_out = add_setting(sub, "--check", check);
  add_setting(sub, "--check-chunks", windows);
  add_setting(sub, "--no-check", no_check)->excludes(held_out);
  add_setting(sub, "--overwrite", overwrite);
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

std::vector<model::text::TokenId> RepairFlags::check_tokens(const model::arch::Model& base) const {
  return model::infer::perplexity_tokens(*base.tokenizer, held_out_text(check), model::infer::bos_place(text.bos));
}

model::infer::PerplexityOptions RepairFlags::check_options(const model::arch::Model& base) const {
  model::infer::PerplexityOptions options;
  options.exact = true;
  options.windows = windows;
  options.length = std::min(text.run.length, base.integer("context"));
  options.bos = text.bos != "none" && base.tokenizer->adds_bos();
  return options;
}

}  // namespace lumen::cli
