#include "cli/inspect/check_family.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file/file.h"
#include "base/messages/spelling.h"
#include "cli/output.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/recorded/recorded.h"

namespace lumen::cli {
namespace {

// The library with the family's text in place of its own one; sets the family's name.
model::arch::LibraryRef library_with(const Shared& shared, const std::string& file, std::string& name) {
  auto library = model::arch::Library::builtin();
  for (const std::string& folder : shared.format_folders) library->add_format_folder(folder);
  for (const std::string& folder : shared.model_folders) library->add_model_folder(folder);
  if (!file.ends_with(".lum")) {
    const std::vector<std::string> known = library->family_names();
    if (std::find(known.begin(), known.end(), file) == known.end())
      throw Error(Exit::usage, fmt::format("'{}' is neither a .lum file nor a known family", file),
                  did_you_mean_any(file, known));
    name = file;
    return library;
  }
  if (!std::filesystem::exists(file)) throw user_error("{}: no such file", file);
  const lang::File& text =
      library->replace_model_text(std::make_shared<Source>(Source{file, read_file(file, 16 << 20)}));
  if (text.models.empty()) throw user_error("{}: this file defines no family", file);
  name = text.models.front().name;
  return library;
}

}  // namespace

int check_family(const Shared& shared, const std::string& file, const std::string& against) {
  std::string name;
  const model::arch::LibraryRef library = library_with(shared, file, name);
  const model::infer::Recording recording = model::infer::read_recording(against, library->formats());
  const model::arch::Model model = model::arch::read_model(library, recording.model);
  if (model.family->name() != name)
    throw Error(Exit::user,
                fmt::format("the family of {} is '{}', not '{}'", recording.model.string(), model.family->name(), name),
                "a family is chosen by \"architectures\" and \"model_type\" of config.json: see its attributes hf and "
                "hf_type");
  run::Engine engine = shared.engine();
  const model::infer::FamilyCheck check = model::infer::check_family(engine, model, recording);
  put(fmt::format("family {} with {}, recorded from {} ({}): {} x {} tokens\n\n", name, recording.model.string(),
                  recording.program, recording.kind, recording.sequences, recording.tokens) +
      model::infer::print(check));
  return exit_code(check.stage < 0 ? Exit::ok : Exit::verify);
}

}  // namespace lumen::cli
