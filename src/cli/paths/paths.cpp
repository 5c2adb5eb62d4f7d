#include "cli/paths/paths.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/file/protected.h"
#include "model/data/examples/load.h"
#include "model/file/hub/resolve.h"
#include "model/file/own_input.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<Reads, const char*> kReads[] = {
    {Reads::file, "reads: file"},     {Reads::model, "reads: model"},     {Reads::data, "reads: data"},
    {Reads::folder, "reads: folder"}, {Reads::run, "reads: run"},         {Reads::resumed, "reads: resumed run"},
    {Reads::tasks, "reads: tasks"},   {Reads::library, "reads: library"},
};

constexpr std::pair<Writes, const char*> kWrites[] = {
    {Writes::file, "writes: file"},
    {Writes::model, "writes: model"},
    {Writes::model_or_input, "writes: model or input"},
    {Writes::folder, "writes: folder"},
    {Writes::folder_of_run, "writes: folder of a run"},
    {Writes::folder_of_cache, "writes: cache"},
};

constexpr const char* kWritesNothing[] = {"--dry-run", "--plan", "--print-config", "--list", "--text"};

template <class What, size_t N>
CLI::Validator named(What what, const std::pair<What, const char*> (&table)[N]) {
  CLI::Validator out([](std::string&) { return std::string(); }, "");
  for (const auto& [one, name] : table)
    if (one == what) out.name(name);
  return out;
}

template <class What, size_t N>
std::optional<What> declared(CLI::Option& option, const std::pair<What, const char*> (&table)[N]) {
  for (const auto& [what, name] : table) {
    try {
      (void)option.get_validator(name);
      return what;
    } catch (const CLI::OptionNotFound&) {
    }
  }
  return std::nullopt;
}

bool exists(const std::string& path) {
  std::error_code failure;
  return !path.empty() && fs::exists(path, failure);
}

// The path in NAME=FILE, FILE=SCALE, NAME=FILE=SCALE and FILE:SCALE; empty when there is none.
std::string marked_path(const std::string& value) {
  const auto until = [](const std::string& text, char sign) { return text.substr(0, text.rfind(sign)); };
  const std::string behind_name = value.substr(value.find('=') == std::string::npos ? 0 : value.find('=') + 1);
  for (const std::string& part :
       {value, until(value, '='), until(value, ':'), behind_name, until(behind_name, '='), until(behind_name, ':')})
    if (exists(part) || part.starts_with(model::file::kHubPrefix) || model::file::local_names().aliases.contains(part))
      return part;
  return {};
}

bool is_given(const CLI::App& command, const char* name) {
  const CLI::Option* option = command.get_option_no_throw(name);
  return option && option->count() > 0;
}

// An output's name in messages.
std::string shown(const CLI::Option& option, const std::string& value) {
  return fmt::format("{} '{}'", option.get_name(), value);
}

void append(std::vector<fs::path>& to, const model::file::Paths& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// The files in a folder, searched `depth` levels deep, that `wanted` accepts.
std::vector<fs::path> files_below(const fs::path& folder, int depth, bool (*wanted)(const fs::path&)) {
  std::vector<fs::path> out;
  std::error_code failure;
  for (const fs::path& path : list_below(folder, failure, depth)) {
    std::error_code unknown;
    if (fs::is_regular_file(path, unknown) && wanted(path)) out.push_back(path);
  }
  return out;
}

bool is_any(const fs::path&) {
  return true;
}
bool is_of_library(const fs::path& file) {
  return file.extension() == ".lum" || file.extension() == ".toml";
}

// The canonical form of a path; two outputs with the same form are the same file.
std::string place_of(const std::string& path) {
  std::error_code failure;
  const fs::path place = fs::weakly_canonical(written_path(path), failure);
  return failure ? path : place.string();
}

}  // namespace

CLI::Validator reads(Reads what) {
  return named(what, kReads);
}
CLI::Validator writes(Writes what) {
  return named(what, kWrites);
}
std::optional<Reads> declared_reads(CLI::Option& option) {
  return declared(option, kReads);
}
std::optional<Writes> declared_writes(CLI::Option& option) {
  return declared(option, kWrites);
}

std::vector<std::string> paths_in(const std::string& value) {
  if (const std::string one = marked_path(value); !one.empty()) return {one};
  std::vector<std::string> out;
  for (size_t begin = 0, end = 0; begin < value.size() && value.find(',') != std::string::npos; begin = end + 1) {
    end = std::min(value.find(',', begin), value.size());
    if (const std::string one = marked_path(value.substr(begin, end - begin)); !one.empty()) out.push_back(one);
  }
  return out;
}

std::vector<fs::path> files_read(const std::string& path, Reads what) {
  std::error_code failure;
  const bool is_folder = fs::is_directory(path, failure);
  std::vector<fs::path> out;
  switch (what) {
    case Reads::file:
      if (!is_folder) out.emplace_back(path);
      break;
    case Reads::model:
      append(out, model::file::model_files(path));
      append(out, model::file::files_of_run(path));
      break;
    case Reads::data:
      if (is_folder)
        append(out, model::data::data_files(path));
      else
        out.emplace_back(path);
      break;
    case Reads::folder:
      out = is_folder ? files_below(path, 0, is_any) : std::vector<fs::path>{path};
      break;
    case Reads::run:
      append(out, model::file::files_of_run(path));
      if (!is_folder) out.emplace_back(path);
      break;
    case Reads::library:
      out = files_below(path, INT_MAX, is_of_library);
      break;
    case Reads::resumed:
    case Reads::tasks:
      break;
  }
  return out;
}

PathGuard::PathGuard(CLI::App& command) {
  take_inputs(command);
  for (const char* name : kWritesNothing)
    if (is_given(command, name)) return;
  check_outputs(command);
}

void PathGuard::take_inputs(CLI::App& command) {
  for (CLI::Option* option : command.get_options({})) {
    const std::optional<Reads> what = option->count() > 0 ? declared_reads(*option) : std::nullopt;
    if (!what) continue;
    for (const std::string& value : option->results())
      for (const std::string& path : paths_in(value)) {
        std::error_code failure;
        const bool is_result = *what == Reads::model || *what == Reads::run || *what == Reads::folder;
        if (is_result && fs::is_directory(path, failure)) folders_.push_back(path);
        try {
          for (const fs::path& file : files_read(path, *what)) inputs_.add(file);
        } catch (const Error&) {
          // A missing or unreadable input is reported by the command itself, with a better message.
        }
      }
  }
}

void PathGuard::check_outputs(CLI::App& command) {
  std::map<std::string, std::string> places;  // normalized path and the option that named it
  for (CLI::Option* option : command.get_options({})) {
    const std::optional<Writes> what = option->count() > 0 ? declared_writes(*option) : std::nullopt;
    if (!what) continue;
    for (const std::string& value : option->results()) {
      if (value.empty() || *what == Writes::folder_of_cache) continue;
      const std::string name = shown(*option, value);
      const auto [place, is_new] = places.emplace(place_of(value), name);
      if (!is_new)
        throw Error(Exit::usage, fmt::format("{} and {} are the same file", place->second, name),
                    "give each output a file of its own");
      std::error_code failure;
      const bool is_folder = fs::is_directory(value, failure);
      const bool is_model = *what == Writes::model || *what == Writes::model_or_input;
      model::file::Paths replaced = {value};
      if (is_model)
        replaced = is_folder ? model::file::replaced_by_folder(value)
                             : model::file::replaced_by_gguf(value, is_given(command, "--split-max-size"));
      if (*what == Writes::model_or_input && is_given(command, "--overwrite")) {
        for (const fs::path& file : replaced) inputs_.allow(file);
      } else {
        const std::string hint =
            fmt::format("name another place for {}{}", option->get_name(),
                        *what == Writes::model_or_input ? ", or add --overwrite: what is there will be gone" : "");
        for (const fs::path& file : replaced) refuse_protected(file, hint);
        if (*what == Writes::folder || *what == Writes::folder_of_run)
          for (const std::string& folder : folders_)
            if (fs::equivalent(folder, value, failure) && !failure)
              throw Error(Exit::usage, fmt::format("{} is the folder '{}', which is read", name, folder),
                          "name another folder");
      }
      // Reports before the work begins what the final rename would refuse (base/file/file.h, AtomicFolder).
      if (is_model && is_folder)
        for (const fs::path& file : replaced)
          if (fs::is_symlink(file, failure) && (file.extension() == ".safetensors" || file.extension() == ".json"))
            throw Error(Exit::user, fmt::format("'{}' is a symbolic link and is not replaced", file.string()),
                        "remove it, or name another folder");
      if (*what == Writes::file) require_writable(value);
      if (*what == Writes::folder) require_writable_folder(value);
    }
  }
}

}  // namespace lumen::cli
