// Beginnings of prompts kept on disk: what caches hold of a block of tokens, in a file of its own whose name is a hash
// of whose it is and of all tokens up to its end. A file is taken when it says of itself that it belongs there, token
// for token, and its seal is whole (run/engine/cache/kept_files.h); any other is removed, and what it held is computed
// again. The files together stay below a bound: those that were not asked for the longest go first. One for all models
// of a process, from any thread. Proved by tests/model/infer/prefixes/prefixes_test.cpp.
//
// May include: base, model/text/tokenizer, run/engine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/text/tokenizer/tokenizer.h"
#include "run/engine/engine.h"

namespace lumen::model {

// What the files do, since the start.
struct PrefixNumbers {
  int64_t bytes = 0, files = 0;      // that are there
  int64_t read = 0, refused = 0;     // files taken, and those that were damaged or somebody else's
  int64_t written = 0, dropped = 0;  // files, and those that made room
};

class PrefixFiles {
 public:
  // Makes the folder where it is missing; files of this user alone are read and written. Error where it cannot be had.
  // `revision`: of the program, without which nothing that another one kept is taken.
  PrefixFiles(const std::filesystem::path& folder, int64_t most_bytes, std::string revision);

  // Whose caches: everything that what they hold depends on, but for the tokens.
  bool has(std::string_view owner, std::span<const TokenId> tokens) const;
  // What caches hold of the last of these tokens, `bytes` of it; nothing where there is no file that can be trusted.
  std::optional<std::string> read(std::string_view owner, std::span<const TokenId> tokens, int64_t bytes);
  // What cannot be written is one warning.
  void write(std::string_view owner, std::span<const TokenId> tokens, std::string_view content);
  // The files of a text that begins so have been asked for, the longest one first.
  void touch(std::string_view owner, std::span<const TokenId> tokens);

  PrefixNumbers numbers() const;

 private:
  struct File {
    int64_t bytes = 0;
    std::filesystem::file_time_type used;
  };
  std::string name_of(std::string_view owner, std::span<const TokenId> tokens) const;
  void find_files();
  std::filesystem::file_time_type next_time();
  void drop(const std::string& name);
  bool make_room(int64_t bytes);

  const int64_t most_bytes_;
  const std::string revision_;
  const std::filesystem::path folder_;  // of the files themselves
  mutable std::mutex mutex_;            // guards what follows
  run::KeptFiles kept_;
  std::map<std::string, File, std::less<>> files_;
  PrefixNumbers numbers_;
  std::filesystem::file_time_type latest_{};  // that a file was asked for
  bool has_warned_ = false;
};

}  // namespace lumen::model
