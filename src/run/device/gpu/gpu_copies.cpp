#include "run/device/gpu/gpu_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/round_up.h"
#include "run/device/memory.h"

namespace lumen::run {
namespace {

constexpr int64_t kChunk = int64_t{4} << 20;
constexpr int64_t kAlignment = 64;
constexpr unsigned kNoTiming = 2;  // for events; both interfaces
constexpr unsigned kOfItsOwn = 1;  // a stream that does not synchronize with the default one; both interfaces

}  // namespace

GpuCopies::GpuCopies(GpuContextRef context) : context_(std::move(context)) {
  context_->use();
  try {
    for (auto* pair : {&up_, &down_})
      for (Chunk& chunk : *pair) make(chunk);
  } catch (...) {
    free_all();
    throw;
  }
}

void GpuCopies::make(Chunk& chunk) {
  const GpuSymbols& gpu = context_->symbols();
  void* host = nullptr;
  // Containers may forbid page-locking; pageable memory is slower but correct.
  if (page_locked_ && gpu.host_allocate(&host, kChunk, 0) != 0) {
    for (auto* pair : {&up_, &down_})
      for (Chunk& c : *pair)
        if (c.host) gpu.host_release(std::exchange(c.host, new std::byte[kChunk]));
    page_locked_ = false;
  }
  chunk.host = page_locked_ ? static_cast<std::byte*>(host) : new std::byte[kChunk];
  context_->check(gpu.event_create(&chunk.event, kNoTiming), "event_create");
}

GpuCopies::~GpuCopies() {
  free_all();
}

void GpuCopies::free_all() {
  const GpuSymbols& gpu = context_->symbols();
  bool bound = true;
  try {
    context_->use();
    gpu.stream_synchronize(context_->stream());  // copies may still read the buffers
  } catch (const Error&) {
    bound = false;
  }
  for (auto* pair : {&up_, &down_})
    for (Chunk& chunk : *pair) {
      if (bound && chunk.event) gpu.event_destroy(chunk.event);
      if (!page_locked_) {
        delete[] chunk.host;
      } else if (bound && chunk.host) {
        gpu.host_release(chunk.host);
      }
    }
}

// Switches to the other buffer, after its copies have completed.
void GpuCopies::turn() {
  const GpuSymbols& gpu = context_->symbols();
  context_->check(gpu.event_record(up_[filling_].event, context_->stream()), "event_record");
  up_[filling_].in_flight = true;
  filling_ = 1 - filling_;
  filled_ = 0;
  if (!std::exchange(up_[filling_].in_flight, false)) return;
  context_->await(up_[filling_].event);
}

void GpuCopies::in(void* to, const void* from, int64_t bytes) {
  const GpuSymbols& gpu = context_->symbols();
  const std::scoped_lock lock(mutex_);
  context_->use();
  for (int64_t done = 0; done < bytes;) {
    if (filled_ == kChunk) turn();
    const int64_t size = std::min(bytes - done, kChunk - filled_);
    std::byte* host = up_[filling_].host + filled_;
    std::memcpy(host, static_cast<const std::byte*>(from) + done, size);
    context_->check(gpu.copy_in(static_cast<std::byte*>(to) + done, host, size, context_->stream()), "copy_in");
    filled_ = std::min(kChunk, round_up(filled_ + size, kAlignment));
    done += size;
  }
}

void GpuCopies::out(void* to, const void* from, int64_t bytes) {
  const GpuSymbols& gpu = context_->symbols();
  const std::scoped_lock lock(mutex_);
  context_->use();
  const int64_t pieces = (bytes + kChunk - 1) / kChunk;
  const auto size_of = [&](int64_t piece) { return std::min(kChunk, bytes - piece * kChunk); };
  const auto chunk_of = [&](int64_t piece) -> Chunk& { return down_[piece % 2]; };
  // Double buffering: piece i is transferred while piece i - 1 is copied to its destination.
  for (int64_t i = 0; i <= pieces; ++i) {
    if (i < pieces) {
      auto* source = const_cast<std::byte*>(static_cast<const std::byte*>(from)) + i * kChunk;
      context_->check(gpu.copy_out(chunk_of(i).host, source, size_of(i), context_->stream()), "copy_out");
      context_->check(gpu.event_record(chunk_of(i).event, context_->stream()), "event_record");
    }
    if (i == 0) continue;
    context_->await(chunk_of(i - 1).event);
    std::memcpy(static_cast<std::byte*>(to) + (i - 1) * kChunk, chunk_of(i - 1).host, size_of(i - 1));
  }
  if (bytes == 0) context_->synchronize();
}

GpuLane::GpuLane(GpuContextRef context) : context_(std::move(context)) {
  context_->use();
  context_->check(context_->symbols().stream_create(&stream_, kOfItsOwn), "stream_create");
}

GpuLane::~GpuLane() {
  try {
    wait();
  } catch (const Error&) {
    return;  // the context and its stream are already destroyed
  }
  context_->symbols().stream_destroy(stream_);
}

void GpuLane::in(void* to, const void* from, int64_t bytes) {
  context_->use();
  context_->check(context_->symbols().copy_in(to, from, bytes, stream_), "copy_in");
}

void GpuLane::out(void* to, const void* from, int64_t bytes) {
  context_->use();
  context_->check(context_->symbols().copy_out(to, const_cast<void*>(from), bytes, stream_), "copy_out");
}

void GpuLane::wait() {
  context_->use();
  context_->check(context_->symbols().stream_synchronize(stream_), "stream_synchronize");
}

GpuStream::GpuStream(GpuContextRef context) : context_(std::move(context)) {
  context_->use();
  context_->check(context_->symbols().stream_create(&stream_, kOfItsOwn), "stream_create");
  try {
    launched_ = make_event();
  } catch (...) {
    context_->symbols().stream_destroy(stream_);
    throw;
  }
}

GpuStream::~GpuStream() {
  const GpuSymbols& gpu = context_->symbols();
  try {
    context_->use();
  } catch (const Error&) {
    return;  // the context and its stream are already destroyed
  }
  gpu.stream_synchronize(stream_);
  gpu.event_destroy(launched_);
  for (const Point& p : points_)
    if (p.event) gpu.event_destroy(p.event);
  gpu.stream_destroy(stream_);
}

void* GpuStream::make_event() const {
  void* event = nullptr;
  context_->check(context_->symbols().event_create(&event, kNoTiming), "event_create");
  return event;
}

void* GpuStream::native() {
  context_->use();
  return stream_;
}

void GpuStream::copy(void* to, const void* from, int64_t bytes) {
  context_->use();
  context_->check(context_->symbols().copy_within(to, const_cast<void*>(from), bytes, stream_), "copy_within");
}

void GpuStream::follow_launches() {
  const GpuSymbols& gpu = context_->symbols();
  context_->use();
  context_->check(gpu.event_record(launched_, context_->stream()), "event_record");
  context_->check(gpu.stream_wait(stream_, launched_, 0), "stream_wait");
}

void GpuStream::mark(size_t point) {
  context_->use();
  if (points_.size() <= point) points_.resize(point + 1);
  Point& p = points_[point];
  if (!p.event) p.event = make_event();
  context_->check(context_->symbols().event_record(p.event, stream_), "event_record");
  p.recording = context_->is_recording() ? context_->recordings() : 0;
}

// The next kernel starts without overlap: it may read before its wait for the previous one
// (GpuDevice::between_programs).
void GpuStream::hold_launches(size_t point) {
  constexpr unsigned kOfReplays = 1;  // an event outside of the recording: each replay waits for its state at that time
  const Point& p = points_.at(point);
  const bool is_outside = context_->is_recording() && p.recording != context_->recordings();
  context_->use();
  context_->check(context_->symbols().stream_wait(context_->stream(), p.event, is_outside ? kOfReplays : 0),
                  "stream_wait");
  context_->set_within_program(false);
}

void AwaitedPlaces::before_use(const void* memory, int64_t bytes) {
  const auto* const first = reinterpret_cast<const std::byte*>(memory);
  for (const Wait& wait : waits_)
    for (const std::span<const std::byte>& place : wait.places)
      if (first < place.data() + place.size() && place.data() < first + bytes) return hold_all();
}

void AwaitedPlaces::hold_all() {
  for (const Wait& wait : waits_) wait.stream->hold_launches(wait.point);
  waits_.clear();
}

std::shared_ptr<std::byte> allocate_page_locked(const GpuContextRef& context, int64_t bytes) {
  void* memory = nullptr;
  context->use();
  if (context->symbols().host_allocate(&memory, bytes, 0) == 0)
    return {static_cast<std::byte*>(memory), [context](std::byte* p) {
              context->use();
              context->symbols().host_release(p);
            }};
  auto ordinary = std::make_shared<HostMemory>();
  return {static_cast<std::byte*>(ordinary->allocate(bytes, Pages::huge)),
          [ordinary](std::byte* p) { ordinary->release(p); }};
}

}  // namespace lumen::run
