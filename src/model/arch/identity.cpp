#include "model/arch/identity.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/threads/threads.h"
#include "graph/ir/text.h"

namespace lumen::model::arch {
namespace {

constexpr int64_t kBlocks = 64, kBlock = 4096;
constexpr int kNice = 10;  // of the background thread

// Everything but the bytes of weights.
std::string description(const Model& model) {
  std::string out = model.family ? model.family->name() + "\n" : "";
  for (const auto& [key, value] : model.config) out += fmt::format("{} {}\n", key, value);
  for (const Parameter& p : model.parameters) out += fmt::format("{}\n", p.name);
  for (const auto& [name, w] : model.weights) out += fmt::format("{} {}\n", name, graph::print(w.type));
  return out;
}

std::string line_of(const std::string& name, const Weight& w, const Hash& hash) {
  return fmt::format("{} {} {}\n", name, graph::print(w.type), hash.hex());
}

// Blocks spread evenly over the concatenated bytes of all weights; all bytes of small models.
Hash hash_of_blocks(const Model& model) {
  int64_t all = 0;
  for (const auto& [name, w] : model.weights) all += std::ssize(std::span(w.bytes));
  std::string taken;
  int64_t begin = 0;  // of a weight
  for (const auto& [name, w] : model.weights) {
    const int64_t size = std::ssize(std::span(w.bytes)), end = begin + size;
    const auto take = [&](int64_t from, int64_t to) {
      from = std::max(from, begin);
      to = std::min(to, end);
      if (from < to) taken.append(reinterpret_cast<const char*>(w.bytes.data()) + (from - begin), to - from);
    };
    if (all <= kBlocks * kBlock) {
      take(begin, end);
    } else {
      // Block i begins at fraction i / (kBlocks - 1) of the last block's offset.
      const double step = double(all - kBlock) / (kBlocks - 1);
      const auto first = std::max<int64_t>(0, int64_t(double(begin - kBlock) / step) - 1);
      for (int64_t i = first; i < kBlocks && int64_t(double(i) * step) < end; ++i)
        take(int64_t(double(i) * step), int64_t(double(i) * step) + kBlock);
    }
    begin = end;
  }
  return hash_text(taken);
}

}  // namespace

Hash weights_hash(const Model& model) {
  std::string text;
  for (const auto& [name, w] : model.weights) text += line_of(name, w, hash_bytes(w.bytes.data(), w.bytes.size()));
  return hash_text(text);
}

struct ModelIdentity::Reading {
  std::string described;
  std::map<std::string, Weight> weights;  // they share the model's bytes
  std::atomic<bool> ends{false};
  std::string text;
  Thread thread;

  void read() {
    for (const auto& [name, w] : weights) {
      if (ends) return;
      text += line_of(name, w, hash_bytes(w.bytes.data(), w.bytes.size()));
    }
  }
};

ModelIdentity::ModelIdentity(const Model& model)
    : sampled_(hash_text(description(model) + hash_of_blocks(model).hex()).hex()),
      reading_(std::make_unique<Reading>()) {
  reading_->described = description(model);
  reading_->weights = model.weights;
  // If no thread can be started, whole() reads.
  reading_->thread = Thread::where_possible([r = reading_.get()] {
    (void)::setpriority(PRIO_PROCESS, id_t(::syscall(SYS_gettid)), kNice);
    r->read();
  });
}

ModelIdentity::~ModelIdentity() {
  if (reading_) reading_->ends = true;
}

const std::string& ModelIdentity::whole() {
  if (!reading_) return whole_;
  if (reading_->thread.is_running())
    reading_->thread.join();
  else
    reading_->read();
  whole_ = hash_text(reading_->described + hash_text(reading_->text).hex()).hex();
  reading_ = nullptr;
  return whole_;
}

}  // namespace lumen::model::arch
