// lumen list
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/folder.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/file/hub/hub.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

struct ListFlags {
  bool json = false;
};

struct Row {
  std::string name, type, where;
  uint64_t bytes = 0;
  fs::file_time_type modified = fs::file_time_type::min();
};

// ISO 8601 date and time, UTC.
std::string time_text(fs::file_time_type at) {
  if (at == fs::file_time_type::min()) return "unknown";  // the file has gone meanwhile
  const auto system = std::chrono::file_clock::to_sys(at);
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::system_clock::duration>(system));
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// The models directly in a configured folder: GGUF files, and folders with safetensors.
void add_models_of_folder(const fs::path& folder, std::vector<Row>* rows) {
  std::error_code failure;
  model::file::FileNames files;
  for (const fs::path& path : list_folder(folder, failure)) {
    if (!fs::is_directory(path, failure)) {
      files.push_back(path.filename().string());
      continue;
    }
    const model::file::FileNames inside = model::file::safetensors_files(model::file::snapshot_files(path));
    Row row{path.filename().string(), "safetensors", folder.string()};
    for (const std::string& file : inside) {
      row.bytes += fs::file_size(path / file, failure);
      row.modified = std::max(row.modified, fs::last_write_time(path / file, failure));
    }
    if (!inside.empty()) rows->push_back(row);
  }
  for (const model::file::GgufSet& set : model::file::gguf_sets(files)) {
    Row row{fs::path(set.files[0]).stem().string(), set.type(), folder.string()};
    for (const std::string& file : set.files) {
      row.bytes += fs::file_size(folder / file, failure);
      row.modified = std::max(row.modified, fs::last_write_time(folder / file, failure));
    }
    rows->push_back(row);
  }
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const model::file::CachedModel& one : model::file::cached_models(model::file::hub_cache()))
    rows.push_back({one.name.text(), one.is_whole ? one.type : one.type + " (parts missing)", "hub cache", one.bytes,
                    one.modified});
  for (const fs::path& folder : model::file::local_names().folders) add_models_of_folder(folder, &rows);
  return rows;
}

int list(const ListFlags& flags) {
  const std::vector<Row> rows = all_rows();
  const auto& aliases = model::file::local_names().aliases;
  if (flags.json) {
    nlohmann::ordered_json out = {{"cache", model::file::hub_cache().string()}};
    out["models"] = nlohmann::ordered_json::array();
    for (const Row& row : rows)
      out["models"].push_back({{"name", row.name},
                               {"bytes", row.bytes},
                               {"type", row.type},
                               {"modified", time_text(row.modified)},
                               {"where", row.where}});
    out["aliases"] = aliases;
    put_text(out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    return 0;
  }
  size_t width = 4;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  if (rows.empty())
    put(fmt::format("{} holds no models; `lumen pull USER/REPO` downloads one\n", model::file::hub_cache().string()));
  else
    put(fmt::format("{:<{}}  {:>10}  {:<12}  {:<10}  {}\n", "name", width, "size", "type", "modified", "where"));
  for (const Row& row : rows)
    put(fmt::format("{:<{}}  {:>10}  {:<12}  {:<10}  {}\n", row.name, width, size_text(double(row.bytes)), row.type,
                    time_text(row.modified).substr(0, 10), row.where));
  for (const auto& [alias, target] : aliases) put(fmt::format("alias {} = {}\n", alias, target));
  return 0;
}

}  // namespace

void add_list(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ListFlags>();
  CLI::App* sub =
      app.add_subcommand("list", "Show the models of the Hugging Face cache and of your folders")->alias("ls");
  add_setting(*sub, "--json", flags->json);
  sub->footer(
      "Every command accepts these names: hf:USER/REPO:Q4_K_M, USER/REPO:Q4_K_M, and REPO:Q4_K_M where no other user "
      "has\n"
      "such a repository. config.toml adds folders and aliases.\n"
      "Examples:\n"
      "  lumen list\n"
      "  lumen list --json");
  set_action(*sub, command, flags, list);
}

}  // namespace lumen::cli
