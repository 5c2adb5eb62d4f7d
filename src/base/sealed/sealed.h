// Files kept between runs: compiled kernels, plans, tokenized data, prompt prefixes, partial quantization results. Each
// belongs to one user: it is a file of mode 0600 in a folder for its kind, inside a folder of that user's own (0700,
// DIR/user-UID of the folder DIR), with a seal made with a secret stored in the same folder (0600). Files that others
// wrote, could have written or damaged are never used, so DIR may be shared. Proved by
// tests/base/sealed/sealed_test.cpp.
//
// A file is its contents with a trailer of 64 bytes: the container's version, the length of the contents, a salt, and
// the seal of kind, name, length and contents.
//
// May include: base, base/file.
// Offers: spool.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/sealed/seal.h"

namespace lumen {

// The result of a lookup by name.
struct SealedContents {
  enum class State : uint8_t { absent, refused, whole } state = State::absent;
  std::string why;                 // refused: the problem with "'FILE' .."
  std::span<const uint8_t> bytes;  // whole: mapped while the keeper exists
  std::shared_ptr<const void> keeper;

  bool is_whole() const { return state == State::whole; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

struct SealedFolderOptions {
  bool quiet = false;        // suppresses the warning when nothing can be kept
  int64_t most_bytes = 0;    // for all kinds together: least recently used files are removed; 0: no limit
  std::string nowhere = {};  // the reason why no folder is set; empty: keeping nothing is intended
  std::string lost = "compiled kernels and tokenized data are made again at every start";  // if nothing can be kept
};

class SealedWriter;

class SealedFolder {
 public:
  // Opens DIR/user-UID, and creates it if it is missing. An empty path: nothing is kept. A problem is one warning for
  // each DIR and process, and from then on nothing is kept. A folder that is readable but not writable is used for
  // reading.
  explicit SealedFolder(const std::filesystem::path& folder, SealedFolderOptions options = {});
  SealedFolder(const SealedFolder&) = delete;
  SealedFolder& operator=(const SealedFolder&) = delete;
  ~SealedFolder();

  // The contents of a file of a kind ("kernels"); each kind has its own folder. Empty if no trusted file exists: the
  // first refused file is a warning, later ones are reported with -v.
  std::string read(const std::string& kind, const std::string& name);
  // The same, mapped, of any size, and with the reason of a refusal. No warning.
  SealedContents map(const std::string& kind, const std::string& name);
  // The file appears complete and replaces an earlier one. Empty contents cannot be kept. `is_flushed`: waits for the
  // disk, so the file survives a system crash; for results that take longer to compute than to flush. Other files torn
  // by a crash fail the seal check and are made again quickly.
  void write(const std::string& kind, const std::string& name, std::string_view contents, bool is_flushed = false);
  // The same in chunks; null if nothing can be kept.
  std::unique_ptr<SealedWriter> create(const std::string& kind, const std::string& name);
  void remove(const std::string& kind, const std::string& name);
  // Reports once that writing fails, and writes nothing from then on.
  void give_up_writing(const std::string& why);

  bool usable() const;                 // files can be kept
  const std::string& trouble() const;  // why not; empty if usable, or if keeping was not requested
  const std::filesystem::path& path() const { return path_; }  // DIR/user-UID
  const SealKey& key() const { return key_; }
  // Whether this object created the secret: none existed, or none that could be trusted.
  bool is_new() const { return is_new_; }

 private:
  friend class SealedWriter;
  class Descriptor;
  struct Found;
  int folder_of(const std::string& kind, bool make);  // -1: not available
  bool open_own(const std::filesystem::path& folder);
  bool open_key(bool fresh);
  bool make_key();
  void give_up(const std::string& why);
  void give_up_errno(const std::string& deed);
  Found find(const std::string& kind, const std::string& name);
  bool is_sealed(const Found& found, const std::string& kind, const std::string& name,
                 std::span<const uint8_t> contents) const;
  void refuse(const std::string& kind, const std::string& name, const std::string& why);
  void keep_within_limit(int64_t more, const std::string& kind, const std::string& name);

  std::filesystem::path path_;
  const SealedFolderOptions options_;
  int own_ = -1;  // the descriptor of path_
  SealKey key_{};
  bool is_new_ = false;
  mutable std::mutex mutex_;          // guards the following members
  std::map<std::string, int> kinds_;  // open folders
  std::string trouble_;
  bool usable_ = false, writable_ = true, has_refused_ = false;
  int64_t bytes_ = -1;  // of all files, approximate; -1: not counted yet
};

// A file being written, invisible until finish(). Without finish() it is removed; the leftovers of a killed process are
// removed by the next one that opens the folder.
class SealedWriter {
 public:
  SealedWriter(SealedFolder& folder, int in, std::string kind, std::string name);
  SealedWriter(const SealedWriter&) = delete;
  SealedWriter& operator=(const SealedWriter&) = delete;
  ~SealedWriter();

  // Error when the disk is full.
  void write(const void* data, size_t size);
  uint64_t position() const { return position_; }
  // Copies bytes written so far, from position `at`, into `to`; false if they cannot be read.
  bool read_back(uint64_t at, std::span<uint8_t> to);
  // The file appears under its name. Error when that fails.
  void finish(bool is_flushed = false);
  // The contents of a finished file, mapped; Error when mapping fails.
  SealedContents map() const;

 private:
  void flush();

  SealedFolder& folder_;
  const int in_;  // the kind's folder
  const std::string kind_, name_;
  std::string part_;
  std::filesystem::path path_;  // of the unfinished file
  int fd_ = -1;
  std::string salt_, buffer_;
  uint64_t position_ = 0, written_ = 0;
  std::unique_ptr<ContentSeal> seal_;
};

// The files kept in a folder DIR for this user, by kind.
struct SealedKind {
  std::string name;
  int64_t files = 0, bytes = 0;
  std::chrono::system_clock::time_point oldest;  // last use of the least recently used file
};
std::vector<SealedKind> list_sealed(const std::filesystem::path& folder);
// Removes the files of one kind, or of all; the secret stays. Returns the bytes freed. Error when one cannot be
// removed.
int64_t clear_sealed(const std::filesystem::path& folder, const std::string& kind = {});

}  // namespace lumen
