// Puts files of the hub into the cache, in the layout that model/file/hub/cache.h describes. A file grows as
// blobs/ETAG.incomplete, from which a later start continues, and gets its name when its size and hash are right. Proved
// by tests/cli/hub/hub_check.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "cli/hub/client.h"

namespace lumen::cli {

class Downloader {
 public:
  // `done`: bytes of the file that are in the cache now.
  using Report = std::function<void(uint64_t done)>;

  Downloader(HubClient& client, model::file::HubName name);

  // Whether the snapshot has the file, whole.
  bool has(const RemoteFile& file) const;
  // Bytes that a download would still fetch.
  uint64_t missing(const RemoteFile& file) const;
  // Error (hardware) when the file system has not so many bytes free.
  void require_space(uint64_t bytes) const;
  // Makes the file part of its snapshot. Other processes that want it wait.
  void get(RemoteFile file, const Report& report);
  // Records that the revision is this commit.
  void set_commit(const std::string& revision, const std::string& commit);

  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }

 private:
  std::filesystem::path blob(const RemoteFile& file) const { return folder_ / "blobs" / file.etag; }
  std::filesystem::path part(const RemoteFile& file) const { return folder_ / "blobs" / (file.etag + ".incomplete"); }
  void download(RemoteFile& file, const Report& report);
  void link(const RemoteFile& file);

  HubClient& client_;
  model::file::HubName name_;
  std::filesystem::path cache_, folder_;
};

}  // namespace lumen::cli
