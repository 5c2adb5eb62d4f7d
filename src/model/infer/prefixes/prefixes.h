// A prefix cache on disk: the KV cache of a block of tokens, in a file named by a hash of its owner and of all tokens
// up to the block's end. A file is used if its header has the same owner and tokens, and its seal is valid
// (base/sealed); any other file is removed, and its content is recomputed. The total size is limited; the least
// recently used files are deleted first. A background thread writes files, and flushes them before the rename to their
// final names, so that requests do not wait for the disk. One object serves all models of a process, from any thread.
// Proved by tests/model/infer/prefixes/prefixes_test.cpp.
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

namespace lumen::model::infer {

// Statistics since the start of the process.
struct PrefixNumbers {
  int64_t bytes = 0, files = 0;      // current
  int64_t read = 0, refused = 0;     // files read, and files rejected as damaged or foreign
  int64_t written = 0, dropped = 0;  // files written, and files deleted to make room
};

class PrefixFiles {
 public:
  // Creates the folder if it is missing; only files of this user are read and written. If the folder cannot be used, a
  // warning gives the reason, and nothing is stored. `revision`: of the program; files of other revisions are not used.
  PrefixFiles(const std::filesystem::path& folder, int64_t most_bytes, std::string revision);
  PrefixFiles(const PrefixFiles&) = delete;
  PrefixFiles& operator=(const PrefixFiles&) = delete;
  ~PrefixFiles();  // waits until all is written

  // `owner`: everything that the cache content depends on, except the tokens.
  bool has(std::string_view owner, std::span<const text::TokenId> tokens) const;
  // The cache content of the last block of these tokens, `bytes` long; nullopt if there is no valid file.
  std::optional<std::string> read(std::string_view owner, std::span<const text::TokenId> tokens, int64_t bytes);
  // The content is readable immediately and written in the background; blocks if too much is queued. A failure to write
  // gives a single warning.
  void write(std::string_view owner, std::span<const text::TokenId> tokens, std::string_view content);
  // Marks the file of this prefix as just used. Call it for the longest prefix first.
  void touch(std::string_view owner, std::span<const text::TokenId> tokens);

  PrefixNumbers numbers() const;
  void finish();  // waits until everything is on disk

 private:
  struct File {
    int64_t bytes = 0;
    std::filesystem::file_time_type used;
    std::shared_ptr<const std::string> unwritten = nullptr;
  };
  std::string name_of(std::string_view owner, std::span<const text::TokenId> tokens) const;
  void find_files();
  std::filesystem::file_time_type next_time();
  void drop(const std::string& name);
  bool make_room(int64_t bytes);
  void write_all();
  void write_one(std::unique_lock<std::mutex>& lock, const std::string& name);

  const int64_t most_bytes_;
  const std::string revision_;
  const std::filesystem::path folder_;  // the files' own folder
  mutable std::mutex mutex_;            // guards the following members
  SealedFolder kept_;
  std::map<std::string, File, std::less<>> files_;
  PrefixNumbers numbers_;
  std::filesystem::file_time_type latest_{};  // latest time of use of a file
  bool has_warned_ = false;
  std::deque<std::pair<std::string, int64_t>> queue_;  // names and bytes of files to write
  int64_t queued_bytes_ = 0;                           // including the file that is being written
  bool is_ending_ = false;
  std::condition_variable changed_;
  Thread writer_;
};

}  // namespace lumen::model::infer
