#include "cli/servers/servers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/structured/json.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostState = 1 << 16;  // bytes of a file
constexpr int kFieldOfStart = 20;         // of /proc/PID/stat, after the name of the process and its state

// Clock ticks from the system's start to that of a process; nullopt where there is no such process.
std::optional<int64_t> start_of(int64_t process) {
  std::ifstream in(fmt::format("/proc/{}/stat", process));
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end_of_name + 1));
  std::string field;
  for (int i = 0; i < kFieldOfStart; ++i)
    if (!(fields >> field)) return std::nullopt;
  return std::strtoll(field.c_str(), nullptr, 10);
}

// Creates the folder for this user alone. Error when it is another user's, which is possible in a folder that all users
// share.
void make_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw system_error("create", folder);
  struct stat state{};
  if (::lstat(folder.c_str(), &state) != 0) throw system_error("read", folder);
  if (!S_ISDIR(state.st_mode) || state.st_uid != ::geteuid() || (state.st_mode & 022) != 0)
    throw user_error("{} is no folder that only this user writes", folder.string());
}

ServerState parsed(const fs::path& file) {
  const std::string where = file.string();
  const nlohmann::json json = parse_json(read_file(file, kMostState), where);
  ServerState out;
  out.process = json_integer(json, "process", where);
  out.started = json_integer(json, "started", where);
  out.host = json_text(json, "host", where);
  out.port = int(std::clamp<int64_t>(json_integer(json, "port", where), 0, 65535));
  out.has_tls = json_boolean(json, "tls", false, where);
  for (const nlohmann::json& model : json_member(json, "models", where))
    if (model.is_string()) out.models.push_back(model);
  return out;
}

}  // namespace

fs::path servers_folder() {
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime) {
    std::error_code failure;
    if (fs::is_directory(runtime, failure)) return fs::path(runtime) / "lumen";
  }
  std::error_code failure;
  const fs::path temporary = fs::temp_directory_path(failure);
  return (failure ? fs::path("/tmp") : temporary) / fmt::format("lumen-{}", ::geteuid());
}

ServerRecord::ServerRecord(ServerState state) {
  try {
    const int64_t process = ::getpid();
    const fs::path folder = servers_folder();
    make_folder(folder);
    const nlohmann::json json = {{"process", process},   {"started", start_of(process).value_or(0)},
                                 {"host", state.host},   {"port", state.port},
                                 {"tls", state.has_tls}, {"models", state.models}};
    const fs::path file = folder / fmt::format("serve-{}-{}.json", process, state.port);
    write_file_atomic(file, json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    file_ = file;
  } catch (const Error& failure) {
    warn(fmt::format("`lumen ps` does not show this server: {}", failure.what()));
  }
}

ServerRecord::~ServerRecord() {
  std::error_code failure;
  if (!file_.empty()) fs::remove(file_, failure);
}

std::vector<ServerState> running_servers() {
  std::vector<ServerState> out;
  std::error_code failure;
  const fs::path folder = servers_folder();
  if (!fs::is_directory(folder, failure)) return out;
  make_folder(folder);
  for (const fs::path& file : list_folder(folder)) {
    const std::string name = file.filename().string();
    if (!name.starts_with("serve-") || !name.ends_with(".json")) continue;
    try {
      ServerState state = parsed(file);
      if (start_of(state.process) == state.started) {
        out.push_back(std::move(state));
        continue;
      }
    } catch (const Error&) {  // removed like the file of a process that has ended
    }
    fs::remove(file, failure);
  }
  std::ranges::sort(out, {}, &ServerState::port);
  return out;
}

uint64_t memory_of_process(int64_t process) {
  std::ifstream in(fmt::format("/proc/{}/statm", process));
  uint64_t whole = 0, resident = 0;
  return in >> whole >> resident ? resident * uint64_t(::sysconf(_SC_PAGESIZE)) : 0;
}

double age_of_process(const ServerState& state) {
  std::ifstream in("/proc/uptime");
  double up = 0;
  if (!(in >> up)) return 0;
  return std::max(0.0, up - double(state.started) / double(::sysconf(_SC_CLK_TCK)));
}

}  // namespace lumen::cli
