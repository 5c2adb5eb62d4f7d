// Small files kept between starts: compiled kernels, tuned plans, results on GPUs. Each belongs to one user: it lies
// in a folder of that user's own (0700, DIR/user-UID of the cache's folder DIR), in a file of mode 0600, and carries a
// seal made with a secret that lies beside it (0600). What others wrote, could have written or damaged is not taken, so
// a folder may be shared. Proved by tests/run/engine/kept_files_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "emit/seal.h"

namespace lumen::run {

// Where Engine::Options::cache_folder says kernels are kept; empty for memory only.
std::filesystem::path cache_folder(const std::string& option);
// Nothing shall be kept: the option says so, or the environment.
bool is_cache_off(const std::string& option);

class KeptFiles {
 public:
  // Opens DIR/user-UID, and makes it where it is missing. An empty path: nothing is kept. What stands in the way is one
  // warning, unless `quiet`, and from then on nothing is kept. What can be read and not written is read.
  explicit KeptFiles(const std::filesystem::path& folder, bool quiet = false);
  KeptFiles(const KeptFiles&) = delete;
  KeptFiles& operator=(const KeptFiles&) = delete;
  ~KeptFiles();

  // The content of a file of a kind ("kernels"), a folder of its own. Empty where there is none that can be trusted.
  std::string read(const std::string& kind, const std::string& name);
  // Appears whole, in place of an earlier one. An empty content cannot be kept. `is_flushed`: waits for the disk, for
  // what took longer to compute than that, so that a crash of the system leaves it whole. What else a crash tears, its
  // seal shows, and it is made again in moments.
  void write(const std::string& kind, const std::string& name, const std::string& content, bool is_flushed = false);

  bool usable() const;                 // something can be kept
  const std::string& trouble() const;  // why not; empty when it can, or when nothing was asked for

 private:
  class Descriptor;
  int folder_of(const std::string& kind, bool make);  // -1: cannot be had
  bool open_own(const std::filesystem::path& folder);
  bool open_key(bool fresh);
  bool make_key();
  void give_up(const std::string& why);
  void give_up_errno(const std::string& deed);

  std::filesystem::path path_;  // DIR/user-UID
  bool quiet_;
  int own_ = -1;  // that folder
  emit::SealKey key_{};
  mutable std::mutex mutex_;          // guards what follows
  std::map<std::string, int> kinds_;  // open folders
  std::string trouble_;
  bool usable_ = false, writable_ = true;
};

}  // namespace lumen::run
