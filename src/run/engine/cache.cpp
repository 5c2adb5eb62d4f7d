// See cache.h. Files appear by rename, so processes that share a folder see whole files or none; a file that is
// truncated, damaged, from another key or from another user is compiled anew. Proved by tests/run/cache_test.cpp.
#include "run/engine/cache.h"

#include <omp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <exception>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "emit/emit.h"
#include "kernel/loop/text.h"

namespace lumen::run {
namespace {

constexpr char kMagic[8] = {'L', 'U', 'M', 'E', 'N', 'K', '0', '1'};
constexpr uint64_t kLargestFile = uint64_t{64} << 20;

struct Header {
  char magic[8];
  char key[32];
  Hash content;   // of the object
  uint64_t size;  // of the object
};
static_assert(sizeof(Header) == 64);

std::filesystem::path environment_path(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Machine code is executed: only files of this user or of the system's are trusted.
bool is_trusted(const std::filesystem::path& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  return (info.st_uid == ::geteuid() || info.st_uid == 0) && (info.st_mode & S_IWOTH) == 0;
}

class CodeHere : public Module {
 public:
  explicit CodeHere(std::span<const uint8_t> object) : module_(object) {}
  void* find(const std::string& symbol, int64_t) override { return reinterpret_cast<void*>(module_.find(symbol)); }

 private:
  emit::LoadedModule module_;
};

}  // namespace

std::filesystem::path cache_folder(const std::string& option) {
  std::filesystem::path folder = option;
  if (folder.empty()) folder = environment_path("LUMEN_CACHE");
  if (folder == "off") return {};
  if (!folder.empty()) return folder;
  if (const auto xdg = environment_path("XDG_CACHE_HOME"); xdg.is_absolute()) return xdg / "lumen";
  if (const auto home = environment_path("HOME"); home.is_absolute()) return home / ".cache" / "lumen";
  return {};
}

std::unique_ptr<Module> load_here(std::span<const uint8_t> object) {
  return std::make_unique<CodeHere>(object);
}

Spread spread_of(const loop::Kernel& kernel, const machine::Machine& machine, bool small) {
  // Code for processors on a device with a grid, as tests have it: one task per block.
  if (machine.kind == machine::Kind::cpu) return {kernel.tasks, small, kernel.tasks, 1, 0};
  const emit::LaunchShape shape = emit::launch_shape(kernel, machine);
  return {kernel.tasks, small, shape.blocks, shape.threads, shape.shared_bytes};
}

KernelCache::KernelCache(std::shared_ptr<Device> device, std::filesystem::path folder)
    : device_(std::move(device)), folder_(std::move(folder)) {
  const machine::Machine& m = device_->machine();
  identity_ =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}", m.name, m.triple, m.cpu, m.features, emit::version(), device_->identity());
  for (const machine::Row& row : m.rows) identity_ += fmt::format("{} {}\n", row.name, row.llvm);
  if (folder_.empty()) return;
  folder_ /= "kernels";
  disk_ = true;
  std::error_code wrong;
  std::filesystem::create_directories(folder_, wrong);
  if (wrong) give_up_disk(wrong.message());
}

void KernelCache::give_up_disk(const std::string& why) {
  if (disk_.exchange(false))
    warn(fmt::format("compiled kernels are not kept: cannot write '{}': {}", folder_.string(), why));
}

std::string KernelCache::key_of(const std::string& text) const {
  return hash_text(identity_ + text).hex();
}

std::string KernelCache::find_on_disk(const std::string& key) const {
  if (!disk_) return {};
  const std::filesystem::path path = folder_ / key;
  if (!is_trusted(path)) return {};
  std::string file;
  try {
    file = read_file(path, kLargestFile);
  } catch (const Error&) {
    return {};  // another process may be replacing it, or it grew beyond sense: compile
  }
  Header header{};
  if (file.size() < sizeof(Header)) return {};
  std::memcpy(&header, file.data(), sizeof(Header));
  std::string object = file.substr(sizeof(Header));
  const bool whole = std::memcmp(header.magic, kMagic, sizeof(kMagic)) == 0 && key == std::string(header.key, 32) &&
                     header.size == object.size() && header.content == hash_text(object);
  if (!whole) {
    verbose(fmt::format("cache file {} is damaged; its kernel is compiled again", path.string()));
    return {};
  }
  return object;
}

void KernelCache::keep_on_disk(const std::string& key, const std::string& object) {
  if (!disk_) return;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::memcpy(header.key, key.data(), sizeof(header.key));
  header.content = hash_text(object);
  header.size = object.size();
  try {
    AtomicFile file(folder_ / key);
    file.write(&header, sizeof(header));
    file.write(object);
    file.commit();
  } catch (const Error& error) {
    give_up_disk(error.what());
  }
}

struct KernelCache::Entry {
  const loop::Kernel* kernel;
  std::string key;
  std::string object;
  bool on_disk = false;
};

std::vector<void*> KernelCache::get(std::span<const loop::Kernel* const> kernels, int threads, CompileReport* report) {
  std::vector<std::string> keys;
  std::vector<Entry> missing;
  {
    const std::scoped_lock lock(mutex_);
    std::unordered_map<std::string, bool> seen;
    for (const loop::Kernel* k : kernels) {
      keys.push_back(key_of(loop::print(*k)));
      if (!seen.emplace(keys.back(), true).second) continue;
      ++report->kernels;
      if (loaded_.contains(keys.back())) {
        ++report->cached;
      } else {
        missing.push_back({k, keys.back(), {}});
      }
    }
  }
  // Disk first, compiler second; every kernel is a file of its own, so the work splits over threads by itself.
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1) num_threads(std::max(1, threads)) if (missing.size() > 1)
  for (size_t i = 0; i < missing.size(); ++i) {
    Entry& entry = missing[i];
    try {
      entry.object = find_on_disk(entry.key);
      entry.on_disk = !entry.object.empty();
      if (entry.on_disk) continue;
      entry.object = device_->prepare(emit::emit({entry.kernel, 1}, device_->machine(), emit::Output::object));
      keep_on_disk(entry.key, entry.object);
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);

  const std::scoped_lock lock(mutex_);
  for (const Entry& entry : missing) {
    ++(entry.on_disk ? report->cached : report->compiled);
    modules_.push_back(device_->load(entry.object));
    const int64_t shared_bytes = spread_of(*entry.kernel, device_->machine(), false).shared_bytes;
    loaded_[entry.key] = modules_.back()->find(emit::symbol_name(*entry.kernel), shared_bytes);
  }
  std::vector<void*> functions;
  for (const std::string& key : keys) functions.push_back(loaded_.at(key));
  return functions;
}

}  // namespace lumen::run
