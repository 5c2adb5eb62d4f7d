#include "model/file/hub/name.h"

#include <algorithm>

#include "base/error.h"

namespace lumen::model::file {
namespace {

constexpr size_t kLongestName = 96, kLongestPath = 1024, kLongestComponent = 255;  // bytes
constexpr size_t kCommitDigits = 40;

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Calls `accepts` with each component between slashes; false at the first that it rejects.
template <class Accepts>
bool all_components(std::string_view text, const Accepts& accepts) {
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('/', at), text.size());
    if (!accepts(text.substr(at, end - at))) return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

std::string HubName::text() const {
  std::string out = repository();
  if (!file.empty()) out += "/" + file;
  if (!part.empty()) out += ":" + part;
  if (revision != kMainRevision) out += "@" + revision;
  return out;
}

bool is_plain_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && text != "." && text.find("..") == std::string_view::npos &&
         std::ranges::all_of(text, [](char c) { return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_revision(std::string_view text) {
  return !text.empty() && text.size() <= kLongestComponent && all_components(text, is_plain_name);
}

bool is_repository_path(std::string_view text) {
  if (text.empty() || text.size() > kLongestPath) return false;
  return all_components(text, [](std::string_view one) {
    return !one.empty() && one.size() <= kLongestComponent && one != "." && one != ".." &&
           std::ranges::none_of(one, [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '\\'; });
  });
}

bool is_commit(std::string_view text) {
  return text.size() == kCommitDigits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string in_lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return out;
}

HubName parse_hub_name(std::string_view text) {
  std::string_view left = text.starts_with(kHubPrefix) ? text.substr(kHubPrefix.size()) : text;
  const auto refuse = [&] {
    return Error(Exit::usage, fmt::format("'{}' is no name of a repository; they are called USER/REPO", text),
                 "USER/REPO:Q4_K_M and USER/REPO/FILE.gguf name a file of it, @REVISION a branch, tag or commit");
  };
  HubName out;
  if (const size_t at = left.rfind('@'); at != std::string_view::npos) {
    out.revision = left.substr(at + 1);
    left = left.substr(0, at);
    if (!is_revision(out.revision)) throw refuse();
  }
  if (const size_t at = left.find(':'); at != std::string_view::npos) {
    out.part = left.substr(at + 1);
    left = left.substr(0, at);
    if (!out.part.empty() && !is_plain_name(out.part)) throw refuse();
  }
  const size_t slash = left.find('/');
  if (slash == std::string_view::npos) throw refuse();
  out.user = left.substr(0, slash);
  left = left.substr(slash + 1);
  if (const size_t next = left.find('/'); next != std::string_view::npos) {
    out.file = left.substr(next + 1);
    left = left.substr(0, next);
    if (!out.part.empty() || !is_repository_path(out.file) || !in_lower_case(out.file).ends_with(".gguf"))
      throw refuse();
  }
  out.repo = left;
  if (!is_plain_name(out.user) || !is_plain_name(out.repo)) throw refuse();
  return out;
}

}  // namespace lumen::model::file
