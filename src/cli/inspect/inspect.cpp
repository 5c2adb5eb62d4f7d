// lumen inspect FILE
#include <cstring>

#include "base/error.h"
#include "base/file/file.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/low_rank_weights.h"
#include "model/file/checkpoint.h"
#include "model/file/gguf_split.h"
#include "model/file/hub/resolve.h"
#include "model/file/safetensors.h"

namespace lumen::cli {
namespace {

struct InspectFlags {
  std::string path;
  size_t limit = 8;
  bool tensors_only = false;
};

std::string element_text(const graph::Element& e) {
  return e.format ? e.format->name : std::string(scalar_name(e.scalar));
}

void print_tensors(const model::file::TensorFile& file, const std::map<std::string, std::string>& roles) {
  int64_t weights = 0, bytes = 0;
  std::string out = fmt::format("{:<44} {:>20} {:<10} {:>14} {:>8}  {}\n", "tensor", "shape", "type", "bytes", "bpw",
                                roles.empty() ? "" : "role");
  for (const model::file::StoredTensor& t : file.tensors()) {
    std::string shape;
    for (size_t i = 0; i < t.shape.size(); ++i) shape += (i ? "x" : "") + std::to_string(t.shape[i]);
    const int64_t count = t.rows() * t.columns();
    int64_t stored = 0;
    for (const auto& section : t.sections) stored += section.size();
    if (stored == 0) stored = t.data.size();
    bytes += stored;
    const auto role = roles.find(t.name);
    const bool is_branch =
        role != roles.end() && role->second == model::arch::kBranchRole;  // its bytes belong to another tensor
    weights += is_branch ? 0 : count;
    out += fmt::format("{:<44} {:>20} {:<10} {:>14} {:>8.3f}  {}\n", printable(t.name), shape, element_text(t.element),
                       stored, count > 0 ? 8.0 * stored / count : 0.0, role == roles.end() ? "" : role->second);
  }
  out += fmt::format("{} tensors, {} weights, {} bytes, {:.3f} bits per weight\n", file.tensors().size(), weights,
                     bytes, weights > 0 ? 8.0 * bytes / weights : 0.0);
  put(out);
}

void inspect_gguf(const model::arch::LibraryRef& library, const std::filesystem::path& path,
                  const InspectFlags& flags) {
  const model::file::SplitGguf file(path, library->formats());
  if (!flags.tensors_only) {
    for (const auto& [key, value] : file.metadata().entries()) {
      put(fmt::format("{:<44} {:<18} {}\n", printable(key), model::file::gguf_type_name(value),
                      printable(model::file::gguf_print(value, flags.limit))));
    }
  }
  // Roles, if the file is a model of a known family.
  std::map<std::string, std::string> roles;
  try {
    const model::arch::Model model = model::arch::read_gguf(library, path);
    for (const model::arch::Parameter& p : model.parameters) roles[p.gguf] = p.role;
  } catch (const Error&) {
    roles.clear();
  }
  print_tensors(file, roles);
}

void inspect_checkpoint(const model::arch::LibraryRef& library, const std::filesystem::path& folder) {
  const model::file::Checkpoint checkpoint = model::file::load_checkpoint(folder, library->formats());
  put(fmt::format("checkpoint of step {}, seed {}, next batch {}\n{}\n{}\n", checkpoint.state.step,
                  checkpoint.state.seed, checkpoint.state.data_position, checkpoint.state.config,
                  checkpoint.state.more.dump(2)));
  print_tensors(*checkpoint.weights, {});
  print_tensors(*checkpoint.optimizer, {});
}

// A Hugging Face folder: its family and configuration, then its tensors.
void inspect_folder(const model::arch::LibraryRef& library, const std::filesystem::path& path,
                    const InspectFlags& flags) {
  std::map<std::string, std::string> roles;
  if (std::filesystem::exists(path / "config.json")) {
    try {
      const model::arch::Model model = model::arch::read_hf(library, path);
      if (!flags.tensors_only) {
        std::string text = fmt::format("family {}, {} weights, {} bytes in memory\n", model.family->name(),
                                       model.weight_count(), model.weight_bytes());
        for (const auto& [key, value] : model.config) text += fmt::format("{:<44} {}\n", printable(key), value);
        put(text);
      }
      for (const model::arch::Parameter& p : model.parameters) roles[p.hf] = p.role;
    } catch (const Error& e) {
      put(fmt::format("no model of a known family: {}\n", e.what()));
    }
  }
  print_tensors(*model::file::open_tensors(path, library->formats()), roles);
}

bool is_gguf(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
}

int inspect(const Shared& shared, const InspectFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  const std::filesystem::path path = model::file::resolve_path(flags.path);
  if (!std::filesystem::exists(path)) throw user_error("{}: no such file", path.string());
  if (std::filesystem::is_directory(path)) {
    if (std::filesystem::exists(path / "trainer_state.json")) {
      inspect_checkpoint(library, path);
    } else if (const auto latest = model::file::latest_checkpoint(path)) {
      inspect_checkpoint(library, *latest);
    } else {
      inspect_folder(library, path, flags);
    }
    return 0;
  }
  if (is_gguf(path)) {
    inspect_gguf(library, path, flags);
    return 0;
  }
  const auto file = model::file::open_tensors(path, library->formats());
  print_tensors(*file, {});
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Command& command) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* sub =
      app.add_subcommand("inspect", "Print metadata and tensors of a GGUF or safetensors file, or a checkpoint");
  add_setting(*sub, "--model", flags->path);
  auto* limit = add_setting(*sub, "--limit", flags->limit);
  add_setting(*sub, "--tensors", flags->tensors_only)->excludes(limit);
  sub->footer("Examples:\n  lumen inspect model.gguf\n  lumen inspect my-model/checkpoint-2000");
  set_action(*sub, command, flags, inspect);
}

}  // namespace lumen::cli
