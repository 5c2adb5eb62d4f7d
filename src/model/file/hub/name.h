// Names of models of the Hugging Face hub. Proved by tests/model/file/hub/name_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen::model::file {

inline constexpr std::string_view kHubPrefix = "hf:";
inline constexpr std::string_view kMainRevision = "main";

// USER/REPO, USER/REPO:PART or USER/REPO/FILE.gguf, each with @REVISION or without.
struct HubName {
  std::string user, repo;
  std::string part;  // a quantization (Q4_K_M), or a part of the file's name; may be empty
  std::string file;  // a path inside the repository; may be empty
  std::string revision = std::string(kMainRevision);

  std::string repository() const { return user + "/" + repo; }
  std::string folder() const { return "models--" + user + "--" + repo; }  // in the cache
  std::string text() const;                                               // without the prefix
};

// Accepts "hf:" in front. Error (usage) when the text has another form.
HubName parse_hub_name(std::string_view text);

// Whether the text is a plain name, from which no other path can be built: letters, digits, - _ and single dots.
bool is_plain_name(std::string_view text);
// The same for a branch, a tag, a commit or a reference such as refs/pr/1.
bool is_revision(std::string_view text);
// Whether the text is the path of a file inside a repository: relative, without "..", "." and control characters, and
// short enough for a file system.
bool is_repository_path(std::string_view text);
// 40 hexadecimal digits in lower case.
bool is_commit(std::string_view text);

// ASCII letters in lower case.
std::string in_lower_case(std::string_view text);

}  // namespace lumen::model::file
