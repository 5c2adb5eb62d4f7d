#include "run/ranks/gpu_transport.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/log.h"
#include "run/device/choose/choose.h"
#include "run/device/device.h"
#include "run/device/shared_library.h"
#include "run/ranks/ranks.h"

namespace lumen::run {
namespace {

constexpr int kBytes = 0;       // ncclInt8
constexpr int kInProgress = 7;  // ncclInProgress
constexpr int kOldest = 2700;   // has ncclSend; the encoding of versions changes in 2.9

struct UniqueId {
  char bytes[128];
};

struct Symbols {
  std::string file, title;
#define X(name, parameters, symbol) int(*name) parameters = nullptr;
#include "run/ranks/gpu_transport_symbols.def"
#undef X
  const char* (*text)(int error) = nullptr;
};

Symbols open_symbols(GpuVendor vendor) {
  const bool cuda = vendor == GpuVendor::cuda;
  const char* name = cuda ? "NCCL" : "RCCL";
  const SharedLibrary opened =
      cuda ? open_shared_library("LUMEN_NCCL_LIBRARY", {"libnccl.so.2"}, RTLD_NOW, name,
                                 "install NVIDIA's libnccl2, or name libnccl.so.2 in LUMEN_NCCL_LIBRARY")
           : open_shared_library("LUMEN_RCCL_LIBRARY", {"librccl.so.1", "/opt/rocm/lib/librccl.so.1"}, RTLD_NOW, name,
                                 "install AMD's rccl, or name librccl.so.1 in LUMEN_RCCL_LIBRARY");
  Symbols out;
  out.file = opened.file;
  std::vector<std::string> missing;
  const auto find = [&](const char* symbol) {
    void* found = ::dlsym(opened.handle, symbol);
    if (!found) missing.emplace_back(symbol);
    return found;
  };
#define X(name, parameters, symbol) out.name = reinterpret_cast<decltype(out.name)>(find(symbol));
#include "run/ranks/gpu_transport_symbols.def"
#undef X
  out.text = reinterpret_cast<decltype(out.text)>(find("ncclGetErrorString"));
  if (!missing.empty())
    throw Error(Exit::hardware, fmt::format("{} is no {}: it lacks {}", opened.file, name, fmt::join(missing, ", ")));
  int version = 0;
  if (out.version(&version) != 0 || version < kOldest)
    throw Error(Exit::hardware, fmt::format("{} is too old for sending between two ranks", opened.file));
  // 2.8.4 is 2804; versions from 2.9.0 on are like 20900.
  const int whole = version < 10000 ? 1000 : 10000;
  out.title = fmt::format("{} {}.{}.{}", name, version / whole, version % whole / 100, version % 100);
  return out;
}

class GpuTransport : public Transport {
 public:
  GpuTransport(Symbols symbols, Communicator& ranks, Device& device, const UniqueId& id)
      : symbols_(std::move(symbols)), ranks_(ranks), device_(device), stream_(device.make_stream()) {
    (void)stream_->native();  // binds this thread to the device's GPU
    check(symbols_.join(&communicator_, ranks_.size(), id, ranks_.rank()), "join");
    stream_->watch([this] { check_others(); });
  }
  // A rank that has failed does not wait for the others.
  ~GpuTransport() override {
    stream_->watch({});
    if (communicator_) symbols_.leave(communicator_);
  }

  std::string describe() const override { return symbols_.title; }
  Device::Stream* stream() override { return stream_.get(); }

  void abort(const std::string&) noexcept override {
    if (communicator_) symbols_.abort(communicator_);
    communicator_ = nullptr;
  }

  void enqueue(const SentPieces& to, const TakenPieces& from) override {
    LUMEN_CHECK(communicator_, "a rank goes on after it has ended");
    void* const stream = stream_->native();
    const int own = ranks_.rank();
    LUMEN_CHECK(to[own].size() == from[own].size());
    for (size_t i = 0; i < to[own].size(); ++i) {
      const SentPiece& piece = to[own][i];
      if (piece.bytes > 0 && piece.data != from[own][i].data) stream_->copy(from[own][i].data, piece.data, piece.bytes);
    }
    check(symbols_.group_begin(), "group_begin");
    for (int r = 0; r < ranks_.size(); ++r) {
      if (r == own) continue;
      for (const SentPiece& p : to[r])
        if (p.bytes > 0) check(symbols_.send(p.data, p.bytes, kBytes, r, communicator_, stream), "send");
      for (const TakenPiece& p : from[r])
        if (p.bytes > 0) check(symbols_.take(p.data, p.bytes, kBytes, r, communicator_, stream), "take");
    }
    check(symbols_.group_end(), "group_end");
  }

  void exchange(const SentPieces& to, const TakenPieces& from) override {
    ranks_.begin_between_launches(to, from, 0);
    ranks_.await(0);
    device_.synchronize();
  }

 private:
  // If a peer has died, the stream waits for ever: check the ranks meanwhile.
  void check_others() {
    try {
      ranks_.check();
      if (!communicator_) return;
      int failed = 0;
      check(symbols_.failed(communicator_, &failed), "failed");
      check(failed, "failed");
    } catch (const Error&) {
      abort({});
      throw;
    }
  }

  void check(int error, const char* what) const {
    if (error == 0 || error == kInProgress) return;
    throw Error(Exit::hardware, fmt::format("{}: {}: {} ({})", symbols_.title, what, symbols_.text(error), error),
                "NCCL_DEBUG=INFO makes the library print more");
  }

  Symbols symbols_;
  Communicator& ranks_;
  Device& device_;
  std::unique_ptr<Device::Stream> stream_;
  void* communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<Transport> open_gpu_transport(Communicator& ranks, Device& device, const std::string& name,
                                              std::string* title) {
  const DeviceChoice choice = parse_device(name);
  LUMEN_CHECK(choice.kind == DeviceChoice::Kind::gpu, "{} is no GPU", name);
  Symbols symbols;
  std::string refusal;
  try {
    symbols = open_symbols(choice.vendor);
  } catch (const Error& error) {
    refusal = error.what();
  }
  // All ranks use it or none: a rank without it would block the others.
  const std::vector<std::string> refusals = ranks.all_gather(refusal);
  for (int r = 0; r < ranks.size(); ++r) {
    if (refusals[r].empty()) continue;
    if (ranks.rank() == 0)
      note(fmt::format("rank {}: {}; GPUs exchange data through memory of the host", r, refusals[r]));
    return nullptr;
  }
  UniqueId id{};
  if (ranks.rank() == 0 && symbols.make_id(&id) != 0)
    throw Error(Exit::hardware, fmt::format("{} makes no id for a communicator", symbols.title));
  ranks.broadcast(std::as_writable_bytes(std::span(id.bytes)), 0);
  *title = symbols.title;
  return std::make_unique<GpuTransport>(std::move(symbols), ranks, device, id);
}

}  // namespace lumen::run
