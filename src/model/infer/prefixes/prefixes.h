// Prompt prefixes kept on disk: what KV caches hold of a block of tokens, in a file of its own whose name is a hash
// of whose it is and of all tokens up to its end. A file is taken when it says of itself that it belongs there, token
// for token, and its seal is whole (base/sealed); any other is removed, and what it held is computed
// again. The files together stay below a bound: those that were not asked for the longest go first. A thread of its own
// brings them to the disk, flushed before they get their names, so that requests do not wait for that. One for all
// models of a process, from any thread. Proved by tests/model/infer/prefixes/prefixes_test.cpp.
//
// May include: base, base/file, base/sealed, base/threads, model/text/tokenizer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/sealed/sealed.h"
#include "base/threads/threads.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model {

// What the files do, since the start.
struct PrefixNumbers {
  int64_t bytes = 0, files = 0;      // that are there
  int64_t read = 0, refused = 0;     // files taken, and those that were damaged or somebody else's
  int64_t written = 0, dropped = 0;  // files, and those that made room
};

class PrefixFiles {
 public:
  // Makes the folder where it is missing; files of this user alone are read and written. Where it cannot be had, a
  // warning says why, and nothing is kept.
  // `revision`: of the program, without which nothing that another one kept is taken.
  PrefixFiles(const std::filesystem::path& folder, int64_t most_bytes, std::string revision);
  PrefixFiles(const PrefixFiles&) = delete;
  PrefixFiles& operator=(const PrefixFiles&) = delete;
  ~PrefixFiles();  // when all is written

  // Whose caches: everything that what they hold depends on, but for the tokens.
  bool has(std::string_view owner, std::span<const TokenId> tokens) const;
  // What caches hold of the last of these tokens, `bytes` of it; nothing where there is no file that can be trusted.
  std::optional<std::string> read(std::string_view owner, std::span<const TokenId> tokens, int64_t bytes);
  // Is there at once, and on the disk soon; waits where that is far behind. What cannot be written is one warning.
  void write(std::string_view owner, std::span<const TokenId> tokens, std::string_view content);
  // The files of a sequence with this prefix have been asked for, the longest one first.
  void touch(std::string_view owner, std::span<const TokenId> tokens);

  PrefixNumbers numbers() const;
  void finish();  // waits until all that was given is on the disk

 private:
  struct File {
    int64_t bytes = 0;
    std::filesystem::file_time_type used;
    std::shared_ptr<const std::string> unwritten = nullptr;
  };
  std::string name_of(std::string_view owner, std::span<const TokenId> tokens) const;
  void find_files();
  std::filesystem::file_time_type next_time();
  void drop(const std::string& name);
  bool make_room(int64_t bytes);
  void write_all();
  void write_one(std::unique_lock<std::mutex>& lock, const std::string& name);

  const int64_t most_bytes_;
  const std::string revision_;
  const std::filesystem::path folder_;  // of the files themselves
  mutable std::mutex mutex_;            // guards what follows
  SealedFolder kept_;
  std::map<std::string, File, std::less<>> files_;
  PrefixNumbers numbers_;
  std::filesystem::file_time_type latest_{};  // that a file was asked for
  bool has_warned_ = false;
  std::deque<std::pair<std::string, int64_t>> queue_;  // names and bytes of what is to be written
  int64_t queued_bytes_ = 0;                           // the one that is being written included
  bool is_ending_ = false;
  std::condition_variable changed_;
  Thread writer_;
};

}  // namespace lumen::model
