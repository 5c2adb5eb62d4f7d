#include "cli/terminal/history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"

namespace lumen::cli {
namespace {

constexpr uint64_t kMostBytes = uint64_t{64} << 20;

// Writes to the file with mode 0600; false where that is impossible.
bool write_private(const std::filesystem::path& file, const std::string& text, int flags) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  if (descriptor < 0) return false;
  const bool written =
      ::fchmod(descriptor, 0600) == 0 && ::write(descriptor, text.data(), text.size()) == ssize_t(text.size());
  return ::close(descriptor) == 0 && written;
}

std::string line_of(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

std::filesystem::path InputHistory::file_of(const std::string& name) {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state && *state == '/') return std::filesystem::path(state) / "lumen" / name;
  const char* home = std::getenv("HOME");
  if (!home || *home != '/') return {};
  return std::filesystem::path(home) / ".local" / "state" / "lumen" / name;
}

InputHistory::InputHistory(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code error;
  if (file_.empty() || !std::filesystem::exists(file_, error)) return;
  std::istringstream lines;
  try {
    lines.str(read_file(file_, kMostBytes));
  } catch (const Error& failure) {
    verbose(fmt::format("no history: {}", failure.what()));
    return;
  }
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (entry.is_string()) entries_.push_back(entry.get<std::string>());
  }
  if (entries_.size() <= kMost) return;
  entries_.erase(entries_.begin(), entries_.end() - kMost);
  std::string kept;
  for (const std::string& entry : entries_) kept += line_of(entry);
  // A second file takes the place of the first, so that a kill leaves one of them whole.
  const std::filesystem::path next = file_.string() + "." + std::to_string(::getpid());
  if (!write_private(next, kept, O_TRUNC) || std::rename(next.c_str(), file_.c_str()) != 0) ::unlink(next.c_str());
}

void InputHistory::add(const std::string& text) {
  if (text.empty() || text.size() > kLongest || (!entries_.empty() && entries_.back() == text)) return;
  entries_.push_back(text);
  if (file_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  if (write_private(file_, line_of(text), O_APPEND)) return;
  verbose(fmt::format("no history: {} cannot be written", file_.string()));
  file_.clear();
}

}  // namespace lumen::cli
