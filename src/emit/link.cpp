// The linker runs in this process and reads and writes files, so input and output go through a temporary folder. It has
// global state, so one link runs at a time. Proved by tests/emit/gpu_test.cpp.
#include "emit/link.h"

#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"

LLD_HAS_DRIVER(elf)

namespace lumen::emit {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // of a linked object

// A temporary folder, removed by the destructor.
class Folder {
 public:
  Folder() {
    std::error_code wrong;
    const std::filesystem::path base = std::filesystem::temp_directory_path(wrong);
    std::string text = (wrong ? std::filesystem::path("/tmp") : base) / "lumen-link-XXXXXX";
    if (!::mkdtemp(text.data()))
      throw Error(Exit::hardware, "no folder for linking can be made below " + base.string());
    path = text;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    remove_tree(path, ignored);
  }
  std::filesystem::path path;
};

}  // namespace

std::string link_shared(const std::string& object) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static bool usable = true;
  if (!usable) throw Error(Exit::hardware, "the linker failed before and cannot run again in this process");
  const Folder folder;
  const std::string in = folder.path / "kernels.o", out = folder.path / "kernels.so";
  write_file_atomic(in, object);
  std::string words;
  llvm::raw_string_ostream stream(words);
  const std::vector<const char*> arguments = {"ld.lld", "-shared", "--threads=1", "-o", out.c_str(), in.c_str()};
  const lld::Result result = lld::lldMain(arguments, stream, stream, {{lld::Gnu, &lld::elf::link}});
  usable = result.canRunAgain;
  if (result.retCode != 0) throw Error(Exit::hardware, "linking a code object failed: " + words);
  return read_file(out, kMostBytes);
}

}  // namespace lumen::emit
