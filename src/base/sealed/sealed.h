// Files kept between starts: compiled kernels, plans, tokenized data, prefixes of prompts, parts of a quantization.
// Each belongs to one user: it lies in a folder of that user's own (0700, DIR/user-UID of the folder DIR), in a file of
// mode 0600 in a folder for its kind, and carries a seal made with a secret that lies beside (0600). What others wrote,
// could have written or damaged is never taken, so DIR may be shared. Proved by tests/base/sealed/sealed_test.cpp.
//
// A file is its contents with a trailer of 64 bytes: the container's version, how long the contents are, a salt, and
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

// What is found under a name.
struct SealedContents {
  enum class State : uint8_t { absent, refused, whole } state = State::absent;
  std::string why;                 // refused: what is wrong with "'FILE' .."
  std::span<const uint8_t> bytes;  // whole: mapped, as long as the keeper lives
  std::shared_ptr<const void> keeper;

  bool is_whole() const { return state == State::whole; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

struct SealedFolderOptions {
  bool quiet = false;        // what stands in the way is no warning
  int64_t most_bytes = 0;    // of all kinds together: what was not used for the longest is removed; 0: no limit
  std::string nowhere = {};  // why no folder is named; empty: nothing shall be kept, which is no trouble
  std::string lost = "compiled kernels and tokenized data are made again at every start";  // where nothing can be kept
};

class SealedWriter;

class SealedFolder {
 public:
  // Opens DIR/user-UID, and makes it where it is missing. An empty path: nothing is kept. What stands in the way is one
  // warning for each DIR in the life of the process, and from then on nothing is kept. What can be read and not
  // written is read.
  explicit SealedFolder(const std::filesystem::path& folder, SealedFolderOptions options = {});
  SealedFolder(const SealedFolder&) = delete;
  SealedFolder& operator=(const SealedFolder&) = delete;
  ~SealedFolder();

  // The contents of a file of a kind ("kernels"), a folder of its own. Empty where there is none that can be trusted:
  // the first one that is refused is a warning, the others are told with -v.
  std::string read(const std::string& kind, const std::string& name);
  // The same mapped, of any size, and with the reason. No warning.
  SealedContents map(const std::string& kind, const std::string& name);
  // Appears whole, in place of an earlier one. Empty contents cannot be kept. `is_flushed`: waits for the disk, for
  // what took longer to compute than that, so that a crash of the system leaves it whole. What else a crash tears, its
  // seal shows, and it is made again in moments.
  void write(const std::string& kind, const std::string& name, std::string_view contents, bool is_flushed = false);
  // The same piece by piece; null where nothing can be kept.
  std::unique_ptr<SealedWriter> create(const std::string& kind, const std::string& name);
  void remove(const std::string& kind, const std::string& name);
  // What cannot be written is told once, and nothing is written any more.
  void give_up_writing(const std::string& why);

  bool usable() const;                 // something can be kept
  const std::string& trouble() const;  // why not; empty when it can, or when nothing was asked for
  const std::filesystem::path& path() const { return path_; }  // DIR/user-UID
  const SealKey& key() const { return key_; }
  // Whether the secret was made by this object: nothing was here, or nothing that could be trusted.
  bool is_new() const { return is_new_; }

 private:
  friend class SealedWriter;
  class Descriptor;
  struct Found;
  int folder_of(const std::string& kind, bool make);  // -1: cannot be had
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
  int own_ = -1;  // that folder
  SealKey key_{};
  bool is_new_ = false;
  mutable std::mutex mutex_;          // guards what follows
  std::map<std::string, int> kinds_;  // open folders
  std::string trouble_;
  bool usable_ = false, writable_ = true, has_refused_ = false;
  int64_t bytes_ = -1;  // of all files, about; -1: not counted yet
};

// A file that is written and not there yet. Without finish() it is removed; what a killed process leaves is removed by
// the next one that opens the folder.
class SealedWriter {
 public:
  SealedWriter(SealedFolder& folder, int in, std::string kind, std::string name);
  SealedWriter(const SealedWriter&) = delete;
  SealedWriter& operator=(const SealedWriter&) = delete;
  ~SealedWriter();

  // Error when the disk is full.
  void write(const void* data, size_t size);
  uint64_t position() const { return position_; }
  // What was written so far, into `to` at the position; false where it cannot be read.
  bool read_back(uint64_t at, std::span<uint8_t> to);
  // The file appears under its name. Error when it cannot.
  void finish(bool is_flushed = false);
  // The contents of a finished file, mapped; Error when they cannot be.
  SealedContents map() const;

 private:
  void flush();

  SealedFolder& folder_;
  const int in_;  // the kind's folder
  const std::string kind_, name_;
  std::string part_;
  std::filesystem::path path_;  // of the part
  int fd_ = -1;
  std::string salt_, buffer_;
  uint64_t position_ = 0, written_ = 0;
  std::unique_ptr<ContentSeal> seal_;
};

// What a folder DIR keeps for this user, by kind.
struct SealedKind {
  std::string name;
  int64_t files = 0, bytes = 0;
  std::chrono::system_clock::time_point oldest;  // when the one that was not used for the longest was used
};
std::vector<SealedKind> list_sealed(const std::filesystem::path& folder);
// Removes the files of a kind, or of all; the secret stays. How many bytes went. Error when one cannot be removed.
int64_t clear_sealed(const std::filesystem::path& folder, const std::string& kind = {});

}  // namespace lumen
