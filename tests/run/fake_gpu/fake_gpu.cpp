// See fake_gpu.h. Compiled twice: as libcuda, and with LUMEN_FAKE_HIP as libamdhip64.
#include "fake_gpu.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "stream.h"

#ifdef LUMEN_FAKE_HIP
#define NAME(cuda, hip) hip
constexpr bool kHip = true;
#else
#define NAME(cuda, hip) cuda
constexpr bool kHip = false;
#endif

namespace {

using lumen::fake::Gpu;
using lumen::fake::Launch;

enum : int {
  kOk = 0,
  kInvalid = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kBadDevice = 101,
  kBadImage = 200,
  kBadContext = 201,
  kBadText = 218,
  kBadHandle = 400,
  kNotFound = 500,
  kBadAddress = 700,
  kTooLong = 702,
  kLaunchFailed = 719,
  kNotReady = 600,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalid = 901,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905
};

struct Stream;
struct Module {
  std::string image;
};
struct Function {
  std::string symbol;
  void* host = nullptr;
};
struct Event {
  std::shared_ptr<Stream> stream;
  size_t position = 0;
  double milliseconds = 0;
  uint64_t graph = 0;  // recorded while that one was captured: a place in it, by branch and position
  size_t branch = 0;
};
// Work in the order of one stream, or a wait: for a place in another branch, or for an event as it is then.
struct GraphNode {
  std::function<int()> work;
  size_t branch = 0, position = 0;
  Event* event = nullptr;
};
struct Graph {
  uint64_t number = 0;
  std::vector<std::vector<GraphNode>> branches;  // the first one is the stream's where the capture began
  std::vector<std::shared_ptr<Stream>> streams;  // that take part; of an executable: on which branches run
};
struct Stream {
  std::deque<std::function<int()>> queue;  // what was asked for and not done yet
  size_t done = 0;                         // of all work ever asked for
  double milliseconds = 0;                 // that all of it takes
  bool is_busy = false;
  std::shared_ptr<Graph> capturing;
  size_t branch = 0;  // of what is captured
  bool capture_broken = false;
};
struct Link {
  std::string text;
  char* log = nullptr;
  size_t log_bytes = 0;
};

using lumen::fake::kBlocked;

constexpr size_t kRange = size_t{4} << 30;  // of device addresses

Gpu fresh() {
  Gpu gpu;
  gpu.version = kHip ? 60342134 : 12080;
  gpu.architecture = "gfx90a:sramecc+:xnack-";
  gpu.wave = kHip ? 64 : 32;
  return gpu;
}

struct State {
  Gpu gpu = fresh();
  std::recursive_mutex mutex;
  bool started = false;
  int sticky = 0;  // after a bad address every call fails
  char *device = nullptr, *host = nullptr;
  std::map<char*, size_t> blocks;  // of device memory, by device address
  std::map<char*, bool> pooled;
  int64_t reserved = 0, used = 0, plain = 0;
  std::map<void*, std::unique_ptr<Function>> functions;
  std::vector<std::unique_ptr<Link>> links;
  std::map<void*, std::shared_ptr<Stream>> streams;
  uint64_t graphs = 0;  // ever captured
  bool forces = true;   // who waits has what it waits for done
  uint32_t random = 1;

  void open() {
    if (device) return;
    const int file = ::memfd_create("fake-gpu", 0);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(kRange)) != 0) std::abort();
    device = static_cast<char*>(::mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    host = static_cast<char*>(::mmap(nullptr, kRange, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0));
    ::close(file);
  }

  // The host's view of [address, address + bytes), or null when that is no live memory of the device.
  char* view(const void* address, size_t bytes) {
    auto* p = static_cast<char*>(const_cast<void*>(address));
    auto after = blocks.upper_bound(p);
    if (after == blocks.begin()) return nullptr;
    --after;
    if (p + bytes > after->first + after->second) return nullptr;
    return host + (p - device);
  }

  void* take(size_t bytes, bool pool) {
    open();
    const auto size = static_cast<int64_t>(bytes);
    const int64_t held = plain + (pool ? used : std::max(reserved, used));
    if (held + size > gpu.bytes) return nullptr;
    // First fit.
    char* at = device;
    for (const auto& [begin, length] : blocks) {
      if (begin - at >= static_cast<std::ptrdiff_t>(bytes)) break;
      at = begin + (length + 255) / 256 * 256;
    }
    if (at + bytes > device + kRange) return nullptr;
    blocks[at] = bytes;
    pooled[at] = pool;
    (pool ? used : plain) += size;
    reserved = std::max(reserved, used);
    ++gpu.device_blocks;
    gpu.device_bytes += size;
    gpu.most_bytes = std::max(gpu.most_bytes, gpu.device_bytes);
    std::memset(host + (at - device), 0xcd, bytes);
    if (gpu.taken) gpu.taken(at, bytes, host + (at - device));
    return at;
  }

  int give_back(void* memory) {
    const auto block = blocks.find(static_cast<char*>(memory));
    if (block == blocks.end()) return kInvalid;
    const auto size = static_cast<int64_t>(block->second);
    if (gpu.given_back) gpu.given_back(memory);
    (pooled[block->first] ? used : plain) -= size;
    --gpu.device_blocks;
    gpu.device_bytes -= size;
    blocks.erase(block);
    return kOk;
  }
};

State& state() {
  static auto* s = new State;  // outlives whoever still calls at the end of the program
  return *s;
}
thread_local bool has_context = false;
[[maybe_unused]] thread_local void* current_context = nullptr;  // of CUDA
[[maybe_unused]] thread_local int current_device = 0;           // of HIP

// Every function begins here: the record, the injected failure, and what a real driver checks first.
int enter(const char* symbol, bool needs_context = true) {
  State& s = state();
  Gpu& gpu = s.gpu;
  gpu.calls.emplace_back(symbol);
  if (gpu.fail_at > 0 && static_cast<int64_t>(gpu.calls.size()) == gpu.fail_at) return gpu.fail_code;
  if (gpu.fail_symbol == symbol && gpu.fail_after-- <= 0) return gpu.fail_code;
  if (needs_context && !s.started) return kNotInitialized;
  if (needs_context && !has_context) return kBadContext;
  return needs_context ? s.sticky : kOk;
}
#define ENTER(...)                            \
  const std::scoped_lock lock(state().mutex); \
  if (const int wrong = enter(__func__ __VA_OPT__(, ) __VA_ARGS__)) return wrong

size_t asked(const Stream& stream) {
  return stream.done + stream.queue.size();
}

// Executes what a stream was asked for, until so much of it is done. kBlocked: it waits for what is not done, and was
// perhaps never asked for.
int finish(Stream& stream, size_t until) {
  State& s = state();
  while (stream.done < until) {
    if (stream.queue.empty() || stream.is_busy) return kBlocked;
    stream.is_busy = true;
    const int error = stream.queue.front()();
    stream.is_busy = false;
    if (error == kBlocked) return kBlocked;
    stream.queue.pop_front();
    ++stream.done;
    if (error != 0 && s.sticky == 0) s.sticky = error;
  }
  return s.sticky;
}

// Of another stream.
std::function<int()> waiting_for(std::shared_ptr<Stream> other, size_t position) {
  return [other = std::move(other), position] {
    if (other->done < position && state().forces) finish(*other, position);
    return other->done < position ? kBlocked : kOk;
  };
}

// Where an order is wanted (Gpu::order), streams go on now and then by themselves, as far as they can.
void wander() {
  State& s = state();
  if (s.gpu.order == 0 || s.streams.empty()) return;
  const auto next = [&] { return s.random = s.random * 1664525 + 1013904223 + s.gpu.order, s.random >> 16; };
  auto at = s.streams.begin();
  std::advance(at, next() % s.streams.size());
  Stream& stream = *at->second;
  s.forces = false;
  finish(stream, std::min(asked(stream), stream.done + next() % 8));
  s.forces = true;
}

int push(void* handle, bool may_be_captured, std::function<int()> work, double milliseconds = 0.25) {
  auto* stream = static_cast<Stream*>(handle);
  if (!stream) return kBadHandle;
  if (stream->capturing) {
    if (!may_be_captured) {
      stream->capture_broken = true;
      return kCaptureUnsupported;
    }
    stream->capturing->branches[stream->branch].push_back({std::move(work)});
    return kOk;
  }
  stream->queue.push_back(std::move(work));
  stream->milliseconds += milliseconds;
  wander();
  return kOk;
}

// Whoever waits lets other threads ask for what is missing.
int wait_for(const std::function<int()>& step) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
    {
      const std::scoped_lock lock(state().mutex);
      if (const int result = step(); result != kBlocked) return result;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return kTooLong;
}

// Texts end with a zero; object files say where their last table ends.
std::string image_of(const void* image) {
  const auto* bytes = static_cast<const char*>(image);
  Elf64_Ehdr header;
  if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0 || bytes[EI_CLASS] != ELFCLASS64) return bytes;
  std::memcpy(&header, bytes, sizeof header);
  return {bytes, static_cast<size_t>(header.e_shoff) + static_cast<size_t>(header.e_shnum) * header.e_shentsize};
}

void say(const std::string& text, char* to, size_t bytes) {
  if (!to || bytes == 0) return;
  const size_t n = std::min(bytes - 1, text.size());
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

// The buffer among the options of a compiler.
[[maybe_unused]] void find_log(unsigned count, const int* options, void** values, char** log, size_t* bytes) {
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == 5) *log = static_cast<char*>(values[i]);
    if (options[i] == 6) *bytes = reinterpret_cast<size_t>(values[i]);
  }
}

[[maybe_unused]] int load(void** module, std::string image, char* log, size_t log_bytes) {
  State& s = state();
  if (image.find("syntax error") != std::string::npos) {
    say(s.gpu.log, log, log_bytes);
    return kHip ? kBadImage : kBadText;
  }
  if (s.gpu.accept && !s.gpu.accept(image)) return kBadImage;
  *module = new Module{std::move(image)};
  ++s.gpu.modules;
  return kOk;
}

}  // namespace

namespace lumen::fake {

Gpu& gpu() {
  return state().gpu;
}
int enter(const char* symbol) {
  const std::scoped_lock lock(state().mutex);
  return ::enter(symbol);
}
char* view(const void* address, size_t bytes) {
  return state().view(address, bytes);
}
void advance_others() {
  State& s = state();
  if (!s.forces) return;
  for (const auto& [handle, stream] : std::map(s.streams)) finish(*stream, asked(*stream));
}
int push(void* stream, double milliseconds, std::function<int()> work) {
  const std::scoped_lock lock(state().mutex);
  return ::push(stream, true, std::move(work), milliseconds);
}

}  // namespace lumen::fake

extern "C" {

Gpu* fake_gpu() {
  return &state().gpu;
}
// As if the process had just begun; a driver knows no such thing.
void fake_gpu_reset() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  s.gpu = fresh();
  s.started = false;
  s.sticky = 0;
  s.blocks.clear();
  s.pooled.clear();
  s.reserved = s.used = s.plain = 0;
  s.streams.clear();
  has_context = false;
  current_context = nullptr;
}

int NAME(cuInit, hipInit)(unsigned) {
  ENTER(false);
  if (state().gpu.devices == 0) return kNoDevice;
  state().started = true;
  return kOk;
}
int NAME(cuDriverGetVersion, hipDriverGetVersion)(int* version) {
  ENTER(false);
  *version = state().gpu.version;
  return kOk;
}
int NAME(cuGetErrorName, hipDrvGetErrorName)(int error, const char** name) {
  switch (error) {
    case kOutOfMemory:
      *name = kHip ? "hipErrorOutOfMemory" : "CUDA_ERROR_OUT_OF_MEMORY";
      return kOk;
    case kNoDevice:
      *name = kHip ? "hipErrorNoDevice" : "CUDA_ERROR_NO_DEVICE";
      return kOk;
    case kBadText:
      *name = kHip ? "hipErrorInvalidKernelFile" : "CUDA_ERROR_INVALID_PTX";
      return kOk;
    case kNotFound:
      *name = kHip ? "hipErrorNotFound" : "CUDA_ERROR_NOT_FOUND";
      return kOk;
    case kBadAddress:
      *name = kHip ? "hipErrorIllegalAddress" : "CUDA_ERROR_ILLEGAL_ADDRESS";
      return kOk;
    case kBadImage:
      *name = kHip ? "hipErrorInvalidImage" : "CUDA_ERROR_INVALID_IMAGE";
      return kOk;
    case kLaunchFailed:
      *name = kHip ? "hipErrorLaunchFailure" : "CUDA_ERROR_LAUNCH_FAILED";
      return kOk;
    case 999:
      *name = kHip ? "hipErrorUnknown" : "CUDA_ERROR_UNKNOWN";
      return kOk;
    default:
      return kInvalid;
  }
}
int NAME(cuGetErrorString, hipDrvGetErrorString)(int error, const char** text) {
  if (error == kInvalid) return kInvalid;
  *text = state().gpu.said.empty() ? "as the stand-in says" : state().gpu.said.c_str();
  return kOk;
}
int NAME(cuDeviceGetCount, hipGetDeviceCount)(int* count) {
  ENTER(false);
  *count = state().gpu.devices;
  return kOk;
}
int NAME(cuDeviceGet, hipDeviceGet)(int* device, int ordinal) {
  ENTER(false);
  if (ordinal < 0 || ordinal >= state().gpu.devices) return kBadDevice;
  *device = ordinal;
  return kOk;
}
int NAME(cuDeviceGetName, hipDeviceGetName)(char* name, int size, int device) {
  ENTER(false);
  say(std::string("Stand-in ") + static_cast<char>('A' + device), name, static_cast<size_t>(size));
  return kOk;
}
int NAME(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t* bytes, int) {
  ENTER(false);
  *bytes = static_cast<size_t>(state().gpu.bytes);
  return kOk;
}
int NAME(cuDeviceGetAttribute, hipDeviceGetAttribute)(int* value, int attribute, int) {
  ENTER(false);
  const Gpu& gpu = state().gpu;
  const bool units = attribute == (kHip ? 63 : 16), pools = attribute == (kHip ? 88 : 115);
  const bool integrated = attribute == (kHip ? 16 : 18), wave = attribute == (kHip ? 87 : 10);
  if (!kHip && attribute == 75) {
    *value = gpu.major;
  } else if (!kHip && attribute == 76) {
    *value = gpu.minor;
  } else if (units || wave) {
    *value = units ? gpu.units : gpu.wave;
  } else if (pools || integrated) {
    *value = pools ? gpu.pools : gpu.integrated;
  } else {
    return kInvalid;
  }
  return kOk;
}
#ifdef LUMEN_FAKE_HIP
int hipGetDevicePropertiesR0600(void* properties, int) {
  ENTER(false);
  constexpr size_t kSize = 1472, kArchitecture = 1160;
  std::memset(properties, 0, kSize);
  say(state().gpu.architecture, static_cast<char*>(properties) + kArchitecture, 256);
  return kOk;
}
int hipSetDevice(int device) {
  ENTER(false);
  if (device < 0 || device >= state().gpu.devices) return kBadDevice;
  has_context = true;
  current_device = device;
  return kOk;
}
int hipGetDevice(int* device) {
  ENTER(false);
  *device = current_device;
  return kOk;
}
int hipModuleLoadData(void** module, const void* image) {
  ENTER();
  return load(module, image_of(image), nullptr, 0);
}
#else
int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER(false);
  if (!state().started) return kNotInitialized;
  *context = reinterpret_cast<void*>(static_cast<uintptr_t>(device + 1));
  ++state().gpu.contexts;
  return kOk;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  ENTER(false);
  --state().gpu.contexts;
  return kOk;
}
int cuCtxSetCurrent(void* context) {
  ENTER(false);
  has_context = context != nullptr;
  current_context = context;
  return kOk;
}
int cuCtxGetCurrent(void** context) {
  ENTER(false);
  *context = current_context;
  return kOk;
}
int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options, void** values) {
  ENTER();
  char* log = nullptr;
  size_t bytes = 0;
  find_log(count, options, values, &log, &bytes);
  return load(module, image_of(image), log, bytes);
}
int cuFuncSetAttribute(void*, int attribute, int value) {
  ENTER();
  return attribute == 8 && value > 0 ? kOk : kInvalid;
}
int cuLinkCreate_v2(unsigned count, int* options, void** values, void** out) {
  ENTER();
  auto link = std::make_unique<Link>();
  find_log(count, options, values, &link->log, &link->log_bytes);
  *out = link.get();
  state().links.push_back(std::move(link));
  ++state().gpu.links_open;
  return state().gpu.links ? kOk : kNotSupported;
}
int cuLinkAddData_v2(void* handle, int type, void* data, size_t size, const char*, unsigned, int*, void**) {
  ENTER();
  auto* link = static_cast<Link*>(handle);
  const auto* text = static_cast<const char*>(data);
  if (type != 1 || size == 0 || text[size - 1] != 0) return kInvalid;
  link->text = text;
  if (link->text.find("syntax error") == std::string::npos) return kOk;
  say(state().gpu.log, link->log, link->log_bytes);
  return kBadText;
}
int cuLinkComplete(void* handle, void** image, size_t* size) {
  ENTER();
  auto* link = static_cast<Link*>(handle);
  link->text =
      "\x7f"
      "ELF made from " +
      link->text;
  *image = link->text.data();
  *size = link->text.size();
  return kOk;
}
int cuLinkDestroy(void* handle) {
  ENTER();
  std::erase_if(state().links, [&](const auto& l) { return l.get() == handle; });
  --state().gpu.links_open;
  return kOk;
}
#endif
int NAME(cuMemGetInfo_v2, hipMemGetInfo)(size_t* free, size_t* total) {
  ENTER();
  const State& s = state();
  *total = static_cast<size_t>(s.gpu.bytes);
  *free = static_cast<size_t>(s.gpu.bytes - s.plain - s.reserved);
  return kOk;
}
int NAME(cuMemAlloc_v2, hipMalloc)(void** memory, size_t bytes) {
  ENTER();
  *memory = state().take(bytes, false);
  return *memory ? kOk : kOutOfMemory;
}
int NAME(cuMemFree_v2, hipFree)(void* memory) {
  ENTER();
  return state().give_back(memory);
}
int NAME(cuMemAllocAsync, hipMallocAsync)(void** memory, size_t bytes, void*) {
  ENTER();
  if (!state().gpu.pools) return kNotSupported;
  *memory = state().take(bytes, true);
  return *memory ? kOk : kOutOfMemory;
}
int NAME(cuMemFreeAsync, hipFreeAsync)(void* memory, void* stream) {
  ENTER();
  return push(stream, false, [memory] { return state().give_back(memory); });
}
int NAME(cuDeviceGetDefaultMemPool, hipDeviceGetDefaultMemPool)(void** pool, int) {
  ENTER();
  *pool = &state().reserved;
  return kOk;
}
int NAME(cuMemPoolSetAttribute, hipMemPoolSetAttribute)(void*, int attribute, void*) {
  ENTER();
  return attribute == 4 ? kOk : kInvalid;
}
int NAME(cuMemPoolGetAttribute, hipMemPoolGetAttribute)(void*, int attribute, void* value) {
  ENTER();
  if (attribute != 5 && attribute != 7) return kInvalid;
  const auto number = static_cast<uint64_t>(attribute == 5 ? state().reserved : state().used);
  std::memcpy(value, &number, sizeof number);
  return kOk;
}
int NAME(cuMemPoolTrimTo, hipMemPoolTrimTo)(void*, size_t) {
  ENTER();
  state().reserved = state().used;
  return kOk;
}
int NAME(cuMemHostAlloc, hipHostMalloc)(void** memory, size_t bytes, unsigned) {
  ENTER();
  if (!state().gpu.page_locks) return kOutOfMemory;
  *memory = std::malloc(bytes);
  ++state().gpu.host_blocks;
  return kOk;
}
int NAME(cuMemFreeHost, hipHostFree)(void* memory) {
  ENTER();
  std::free(memory);
  --state().gpu.host_blocks;
  return kOk;
}
int NAME(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync)(void* to, const void* from, size_t bytes, void* stream) {
  ENTER();
  return push(stream, false, [=] {
    char* at = state().view(to, bytes);
    if (!at) return int{kBadAddress};
    std::memcpy(at, from, bytes);
    state().gpu.bytes_in += static_cast<int64_t>(bytes);
    return int{kOk};
  });
}
int NAME(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync)(void* to, void* from, size_t bytes, void* stream) {
  ENTER();
  return push(stream, false, [=] {
    const char* at = state().view(from, bytes);
    if (!at) return int{kBadAddress};
    std::memcpy(to, at, bytes);
    state().gpu.bytes_out += static_cast<int64_t>(bytes);
    return int{kOk};
  });
}
int NAME(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync)(void* to, void* from, size_t bytes, void* stream) {
  ENTER();
  return push(stream, true, [=] {
    char *a = state().view(to, bytes), *b = state().view(from, bytes);
    if (!a || !b) return int{kBadAddress};
    std::memcpy(a, b, bytes);
    state().gpu.bytes_within += static_cast<int64_t>(bytes);
    return int{kOk};
  });
}
int NAME(cuMemsetD8Async, hipMemsetD8Async)(void* to, unsigned char byte, size_t count, void* stream) {
  ENTER();
  return push(stream, false, [=] {
    char* at = state().view(to, count);
    if (!at) return int{kBadAddress};
    std::memset(at, byte, count);
    return int{kOk};
  });
}
int NAME(cuStreamCreate, hipStreamCreateWithFlags)(void** stream, unsigned flags) {
  ENTER();
  if (flags != 1) return kInvalid;
  auto made = std::make_shared<Stream>();
  *stream = made.get();
  state().streams[made.get()] = std::move(made);
  ++state().gpu.streams;
  return kOk;
}
int NAME(cuStreamDestroy_v2, hipStreamDestroy)(void* stream) {
  ENTER();
  const auto found = state().streams.find(stream);
  if (found == state().streams.end()) return kBadHandle;
  found->second->done = asked(*found->second);
  found->second->queue.clear();
  state().streams.erase(found);
  --state().gpu.streams;
  return kOk;
}
int NAME(cuStreamSynchronize, hipStreamSynchronize)(void* handle) {
  auto* stream = static_cast<Stream*>(handle);
  {
    ENTER();
    if (stream->capturing) {
      stream->capture_broken = true;
      return kCaptureUnsupported;
    }
  }
  return wait_for([&] { return finish(*stream, asked(*stream)); });
}
int NAME(cuCtxSynchronize, hipDeviceSynchronize)() {
  {
    ENTER();
    for (const auto& [handle, stream] : state().streams)
      if (stream->capturing) return kCaptureUnsupported;
  }
  return wait_for([] {
    int result = kOk;
    for (const auto& [handle, stream] : std::map(state().streams))
      if (const int one = finish(*stream, asked(*stream)); one != kOk) result = one;
    return result;
  });
}
int NAME(cuStreamQuery, hipStreamQuery)(void* handle) {
  ENTER();
  auto* stream = static_cast<Stream*>(handle);
  if (stream->capturing) return kCaptureUnsupported;
  const int result = finish(*stream, asked(*stream));
  return result == kBlocked ? int{kNotReady} : result;
}
int NAME(cuEventCreate, hipEventCreateWithFlags)(void** event, unsigned) {
  ENTER();
  *event = new Event;
  ++state().gpu.events;
  return kOk;
}
int NAME(cuEventRecord, hipEventRecord)(void* handle, void* stream_handle) {
  ENTER();
  auto* event = static_cast<Event*>(handle);
  const auto found = state().streams.find(stream_handle);
  if (found == state().streams.end()) return kBadHandle;
  const std::shared_ptr<Stream>& stream = found->second;
  *event = Event{stream, asked(*stream), stream->milliseconds, 0, 0};
  if (!stream->capturing) return kOk;
  event->graph = stream->capturing->number;
  event->branch = stream->branch;
  event->position = stream->capturing->branches[stream->branch].size();
  return kOk;
}
int NAME(cuStreamWaitEvent, hipStreamWaitEvent)(void* handle, void* event_handle, unsigned flags) {
  ENTER();
  auto* event = static_cast<Event*>(event_handle);
  const auto found = state().streams.find(handle);
  if (found == state().streams.end() || !event) return kBadHandle;
  const std::shared_ptr<Stream>& stream = found->second;
  if (event->graph > 0) {
    // It is part of a capture, and who waits for it becomes so.
    const std::shared_ptr<Graph> graph = event->stream->capturing;
    if (flags != 0 || !graph || graph->number != event->graph) return kInvalid;
    if (!stream->capturing) {
      stream->capturing = graph;
      stream->branch = graph->branches.size();
      graph->branches.emplace_back();
      graph->streams.push_back(stream);
    } else if (stream->capturing != graph) {
      return kCaptureIsolation;
    }
    graph->branches[stream->branch].push_back({nullptr, event->branch, event->position, nullptr});
    return kOk;
  }
  if (stream->capturing) {
    if (flags != 1 || kHip) {
      stream->capture_broken = true;
      return kCaptureIsolation;
    }
    stream->capturing->branches[stream->branch].push_back({nullptr, 0, 0, event});
    return kOk;
  }
  if (flags != 0) return kInvalid;
  return event->stream ? push(handle, false, waiting_for(event->stream, event->position), 0) : int{kOk};
}
int NAME(cuEventSynchronize, hipEventSynchronize)(void* handle) {
  const auto* event = static_cast<Event*>(handle);
  {
    ENTER();
    if (event->graph > 0) return kCaptureUnsupported;
    if (!event->stream) return kOk;
  }
  return wait_for([&] { return finish(*event->stream, event->position); });
}
int NAME(cuEventQuery, hipEventQuery)(void* handle) {
  ENTER();
  const auto* event = static_cast<Event*>(handle);
  if (event->graph > 0) return kCaptureUnsupported;
  if (!event->stream) return kOk;
  const int result = finish(*event->stream, event->position);
  return result == kBlocked ? int{kNotReady} : result;
}
int NAME(cuEventElapsedTime, hipEventElapsedTime)(float* milliseconds, void* from, void* to) {
  ENTER();
  *milliseconds = static_cast<float>(static_cast<Event*>(to)->milliseconds - static_cast<Event*>(from)->milliseconds);
  return kOk;
}
int NAME(cuEventDestroy_v2, hipEventDestroy)(void* event) {
  ENTER();
  delete static_cast<Event*>(event);
  --state().gpu.events;
  return kOk;
}
int NAME(cuModuleUnload, hipModuleUnload)(void* module) {
  ENTER();
  delete static_cast<Module*>(module);
  --state().gpu.modules;
  return kOk;
}
int NAME(cuModuleGetFunction, hipModuleGetFunction)(void** function, void* module, const char* symbol) {
  ENTER();
  State& s = state();
  void* host = s.gpu.find ? s.gpu.find(static_cast<Module*>(module)->image, symbol) : nullptr;
  if (!host) return kNotFound;
  auto f = std::make_unique<Function>(Function{symbol, host});
  *function = f.get();
  s.functions[f.get()] = std::move(f);
  return kOk;
}
int NAME(cuLaunchKernel, hipModuleLaunchKernel)(void* handle, unsigned blocks, unsigned y, unsigned z, unsigned threads,
                                                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                                                void** parameters, void** extra) {
  ENTER();
  State& s = state();
  const auto found = s.functions.find(handle);
  if (found == s.functions.end()) return kBadHandle;
  if (y != 1 || z != 1 || block_y != 1 || block_z != 1 || blocks == 0 || threads == 0 || threads > 1024 || parameters)
    return kInvalid;
  const bool ends = extra && extra[4] == (kHip ? reinterpret_cast<void*>(3) : nullptr);
  if (!ends || extra[0] != reinterpret_cast<void*>(1) || extra[2] != reinterpret_cast<void*>(2)) return kInvalid;
  const size_t bytes = *static_cast<size_t*>(extra[3]);
  if (bytes == 0 || bytes % sizeof(void*) != 0) return kInvalid;
  std::vector<void*> arguments(bytes / sizeof(void*));
  std::memcpy(arguments.data(), extra[1], bytes);
  return push(stream, true, [=, f = found->second.get()] {
    State& now = state();
    now.gpu.launches.push_back({f->symbol, blocks, threads, shared_bytes, bytes});
    if (now.gpu.run)
      return now.gpu.run(f->host, std::as_bytes(std::span(arguments)), blocks, threads, shared_bytes)
                 ? int{kOk}
                 : int{kLaunchFailed};
    std::vector<void*> host;
    for (void* argument : arguments) {
      host.push_back(now.view(argument, 1));
      if (!host.back()) return int{kBadAddress};
    }
    if (now.gpu.execute) now.gpu.execute(f->host, host, blocks, threads);
    if (now.gpu.corrupts)
      for (size_t i = 0; i + 1 < host.size(); ++i) *static_cast<char*>(host[i]) ^= 0x40;
    return int{kOk};
  });
}
#ifndef LUMEN_FAKE_HIP
// Kernels that wait themselves for the one before: here they all do.
int cuLaunchKernelEx(const void* launch, void* handle, void** parameters, void** extra) {
  ENTER();
  struct Attribute {
    int name, unused, value[16];
  };
  struct Launch {
    unsigned blocks[3], threads[3], shared_bytes;
    void* stream;
    const Attribute* attributes;
    unsigned count;
  };
  const auto& l = *static_cast<const Launch*>(launch);
  if (l.count != 1 || l.attributes[0].name != 6 || l.attributes[0].value[0] != 1) return kInvalid;
  return cuLaunchKernel(handle, l.blocks[0], l.blocks[1], l.blocks[2], l.threads[0], l.threads[1], l.threads[2],
                        l.shared_bytes, l.stream, parameters, extra);
}
#endif
int NAME(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void* handle, int mode) {
  ENTER();
  auto* stream = static_cast<Stream*>(handle);
  if (mode != 1 || stream->capturing) return kInvalid;
  stream->capturing = std::make_shared<Graph>();
  stream->capturing->number = ++state().graphs;
  stream->capturing->branches.resize(1);
  stream->capturing->streams = {state().streams.at(handle)};
  stream->branch = 0;
  stream->capture_broken = !state().gpu.captures;
  return kOk;
}
// Branches that nobody waits for at their ends.
bool has_loose_ends(const Graph& graph) {
  for (size_t b = 1; b < graph.branches.size(); ++b) {
    bool is_joined = false;
    for (size_t other = 0; other < graph.branches.size(); ++other)
      for (const GraphNode& node : graph.branches[other])
        is_joined = is_joined || (other != b && !node.work && !node.event && node.branch == b &&
                                  node.position == graph.branches[b].size());
    if (!is_joined) return true;
  }
  return false;
}
int NAME(cuStreamEndCapture, hipStreamEndCapture)(void* handle, void** graph) {
  const std::scoped_lock lock(state().mutex);
  auto* stream = static_cast<Stream*>(handle);
  const std::shared_ptr<Graph> captured = stream->capturing;
  bool is_broken = false;
  if (captured)
    for (const auto& part : captured->streams) {
      is_broken = is_broken || part->capture_broken;
      part->capturing = nullptr;  // it ends, whatever comes of it
      part->capture_broken = false;
    }
  if (const int wrong = enter(__func__)) return wrong;
  if (!captured) return kInvalid;
  *graph = nullptr;
  if (is_broken) return kCaptureInvalid;
  if (has_loose_ends(*captured)) return kCaptureUnjoined;
  *graph = new Graph{captured->number, captured->branches, {}};
  ++state().gpu.graphs;
  return kOk;
}
int NAME(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(void** executable, void* graph,
                                                                    unsigned long long flags) {
  ENTER();
  if (flags != 0) return kInvalid;
  auto made = std::make_unique<Graph>(*static_cast<Graph*>(graph));
  made->streams.resize(made->branches.size());
  for (size_t b = 1; b < made->branches.size(); ++b) {
    made->streams[b] = std::make_shared<Stream>();
    state().streams[made->streams[b].get()] = made->streams[b];
  }
  *executable = made.release();
  ++state().gpu.executables;
  return kOk;
}
int NAME(cuGraphLaunch, hipGraphLaunch)(void* executable, void* handle) {
  ENTER();
  State& s = state();
  Graph& graph = *static_cast<Graph*>(executable);
  graph.streams[0] = s.streams.at(handle);
  if (graph.streams[0]->capturing) return kCaptureUnsupported;
  const size_t before = asked(*graph.streams[0]);
  std::vector<size_t> begins;
  for (size_t b = 0; b < graph.branches.size(); ++b) {
    if (b > 0) graph.streams[b]->queue.push_back(waiting_for(graph.streams[0], before));
    begins.push_back(asked(*graph.streams[b]));
  }
  for (size_t b = 0; b < graph.branches.size(); ++b)
    for (const GraphNode& node : graph.branches[b]) {
      std::function<int()> work = node.work;
      if (node.event)
        work = node.event->stream ? waiting_for(node.event->stream, node.event->position) : [] { return int{kOk}; };
      else if (!work)
        work = waiting_for(graph.streams[node.branch], begins[node.branch] + node.position);
      if (const int error = push(graph.streams[b].get(), false, std::move(work))) return error;
    }
  return kOk;
}
int NAME(cuGraphDestroy, hipGraphDestroy)(void* graph) {
  ENTER();
  delete static_cast<Graph*>(graph);
  --state().gpu.graphs;
  return kOk;
}
int NAME(cuGraphExecDestroy, hipGraphExecDestroy)(void* executable) {
  ENTER();
  const Graph& graph = *static_cast<Graph*>(executable);
  for (size_t b = 1; b < graph.streams.size(); ++b) state().streams.erase(graph.streams[b].get());
  delete static_cast<Graph*>(executable);
  --state().gpu.executables;
  return kOk;
}

}  // extern "C"
