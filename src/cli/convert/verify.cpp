// lumen verify RUN|FILE
#include "base/error.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/recipe/record/provenance.h"

namespace lumen::cli {
namespace {

int verify(const Shared& shared, const std::string& path) {
  using Found = model::recipe::VerifyLine::Found;
  int64_t same = 0, differing = 0, missing = 0;
  std::string text, what;
  for (const model::recipe::VerifyLine& line : model::recipe::verify(shared.library(), path)) {
    (line.found == Found::same ? same : line.found == Found::differs ? differing : missing) += 1;
    if (line.found == Found::differs) what += (what.empty() ? "" : ", ") + line.what;
    text += fmt::format("{:<8} {}{}{}\n",
                        line.found == Found::same      ? "same"
                        : line.found == Found::differs ? "DIFFERS"
                                                       : "missing",
                        line.what, line.detail.empty() ? "" : ": ", line.detail);
  }
  put(text);
  put(fmt::format("{} same, {} different, {} missing\n", same, differing, missing));
  if (differing == 0) return 0;
  throw Error(Exit::verify, fmt::format("{} differs from the record: {}", path, what),
              "the listed inputs have changed since; the same run would now give another result");
}

}  // namespace

void add_verify(CLI::App& app, Command& command) {
  auto path = std::make_shared<std::string>();
  CLI::App* sub =
      app.add_subcommand("verify", "Check a run's outputs against the hashes of their inputs that they record");
  add_setting(*sub, "path", *path);
  sub->footer(
      "Compares the base model's weights, data files, the recipe, formats and the compiler, and the files of a run's\n"
      "folder. Exit code 5 if one of them differs. Files that no longer exist are listed as missing.\n"
      "Examples:\n"
      "  lumen verify tuned\n"
      "  lumen verify tuned/model.gguf");
  set_action(*sub, command, path, verify);
}

}  // namespace lumen::cli
