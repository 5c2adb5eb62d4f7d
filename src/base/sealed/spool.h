// Bytes that are written sequentially and then read as one range: into a sealed file of a folder, or, if that is not
// possible or the disk gets full, into a private temporary file, or else into memory. Proved by
// tests/base/sealed/spool_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/sealed/sealed.h"

namespace lumen {

class Spool {
 public:
  // A null folder: in memory. The folder must outlive this object.
  Spool(SealedFolder* folder, const std::string& kind, const std::string& name);
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  ~Spool();

  void write(const void* data, size_t size);
  void pad_to(uint64_t alignment);  // writes zero bytes until the position is a multiple
  // All bytes written; from here on a sealed file has its name.
  SealedContents finish();

 private:
  // An unnamed file of this process only: the kernel frees it when the process ends.
  class PrivateFile;
  bool move_to(PrivateFile& to);
  void leave_folder(const std::string& why);
  void leave_file();

  SealedFolder* const folder_;
  std::unique_ptr<SealedWriter> sealed_;
  std::unique_ptr<PrivateFile> file_;
  std::vector<uint8_t> memory_;
  uint64_t position_ = 0;
};

}  // namespace lumen
