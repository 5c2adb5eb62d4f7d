// libamdhip64 with a chip behind it that executes machine code: the driver's stand-in (tests/run/fake_gpu) keeps
// memory, streams and recordings, and every launch runs in the interpreter.
//   LUMEN_STAND_IN_AMD    the chip: gfx90a, gfx942, gfx950, gfx1100, gfx1201
//   LUMEN_STAND_IN_ANSWERS  what the driver says of itself and of the chip, where that is to be something else:
//                         "version=50600000 devices=0 wave=32 integrated=1 bytes=1000000000 features=:xnack+"
//   LUMEN_STAND_IN_FAULT  a fault of planted.h, "lanes v_mfma": looked at when a kernel is launched
//   LUMEN_STAND_IN_COUNT  a file that at the end gets how many instructions each kernel executed
//   LUMEN_STAND_IN_RECORD  a folder that gets each kernel's first launch (recorded.h), for another emulator
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "tests/amd/driver/recorded.h"
#include "tests/amd/fault.h"
#include "tests/amd/machine.h"
#include "tests/run/fake_gpu/fake_gpu.h"

extern "C" lumen::fake::Gpu* fake_gpu();

namespace lumen::amd {
namespace {

struct Found {
  LoadedObject* object = nullptr;
  LoadedKernel* kernel = nullptr;
  const std::string* image = nullptr;
};

class Driver {
 public:
  explicit Driver(const Chip& chip) : machine_(chip), gpu_(*fake_gpu()) {
    gpu_.architecture = chip.name;
    gpu_.wave = chip.wave;
    gpu_.bytes = int64_t{3} << 30;
    answer(std::getenv("LUMEN_STAND_IN_ANSWERS"));
    gpu_.accept = [this](const std::string& image) { return guarded([&] { load(image); }); };
    gpu_.find = [this](const std::string& image, const std::string& symbol) { return find(image, symbol); };
    gpu_.taken = [this](void* address, size_t bytes, void* host) {
      machine_.memory().add(reinterpret_cast<uint64_t>(address), bytes, host, true);
      record_.taken(reinterpret_cast<uint64_t>(address), bytes, host);
    };
    gpu_.given_back = [this](void* address) {
      machine_.memory().remove(reinterpret_cast<uint64_t>(address));
      record_.given_back(reinterpret_cast<uint64_t>(address));
    };
    gpu_.run = [this](void* function, std::span<const std::byte> arguments, unsigned blocks, unsigned threads,
                      unsigned shared) {
      const auto& f = *static_cast<Found*>(function);
      const uint64_t before = machine_.executed();
      const char* planted = std::getenv("LUMEN_STAND_IN_FAULT");
      plant(planted ? planted : "");
      const Launch launch{blocks, threads, shared, arguments};
      const bool recorded = record_.before(*f.image, machine_.chip().name, f.kernel->code.symbol, launch);
      const bool well = guarded([&] { machine_.launch(*f.object, *f.kernel, launch); });
      if (recorded && well) record_.after();
      counts_[f.kernel->code.symbol] += machine_.executed() - before;
      return well;
    };
  }
  ~Driver() {
    const char* path = std::getenv("LUMEN_STAND_IN_COUNT");
    std::FILE* file = path ? std::fopen(path, "a") : nullptr;
    if (!file) return;
    for (const auto& [symbol, count] : counts_)
      std::fprintf(file, "%s %s %llu\n", machine_.chip().name.c_str(), symbol.c_str(),
                   static_cast<unsigned long long>(count));
    std::fclose(file);
  }
  uint64_t planted() const { return machine_.planted(); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

 private:
  template <class F>
  bool guarded(F f) {
    try {
      f();
      return true;
    } catch (const Fault& fault) {
      gpu_.said = fault.what();
      return false;
    }
  }
  void answer(const char* words) {
    std::istringstream all(words ? words : "");
    for (std::string word; all >> word;) {
      const size_t equals = word.find('=');
      const std::string what = word.substr(0, equals),
                        value = equals == std::string::npos ? "" : word.substr(equals + 1);
      const long long number = std::atoll(value.c_str());
      if (what == "version") {
        gpu_.version = static_cast<int>(number);
      } else if (what == "devices") {
        gpu_.devices = static_cast<int>(number);
      } else if (what == "wave") {
        gpu_.wave = static_cast<int>(number);
      } else if (what == "integrated") {
        gpu_.integrated = number != 0;
      } else if (what == "bytes") {
        gpu_.bytes = number;
      } else if (what == "features") {
        gpu_.architecture += value;
        if (value.find(":xnack") != std::string::npos) machine_.set_xnack(value.find(":xnack+") != std::string::npos);
      } else {
        std::fprintf(stderr, "stand-in for libamdhip64: LUMEN_STAND_IN_ANSWERS does not know %s\n", what.c_str());
        gpu_.devices = 0;
      }
    }
  }
  // With another fault kernels are decoded again.
  void plant(const std::string& fault) {
    if (fault == planted_) return;
    planted_ = fault;
    machine_.plant(fault);
    for (auto& [image, object] : objects_)
      for (auto& [symbol, kernel] : object->kernels) kernel.instructions.clear();
  }
  LoadedObject& load(const std::string& image) {
    auto& object = objects_[image];
    if (!object) {
      try {
        object = machine_.load(std::span(reinterpret_cast<const uint8_t*>(image.data()), image.size()));
      } catch (...) {
        objects_.erase(image);
        throw;
      }
    }
    return *object;
  }
  void* find(const std::string& image, const std::string& symbol) {
    LoadedObject& object = load(image);
    const auto kernel = object.kernels.find(symbol);
    if (kernel == object.kernels.end()) return nullptr;
    auto& found = found_[&kernel->second];
    found = {&object, &kernel->second, &objects_.find(image)->first};
    return &found;
  }

  std::string planted_;
  Machine machine_;
  Recorded record_;
  fake::Gpu& gpu_;
  std::map<std::string, std::unique_ptr<LoadedObject>> objects_;
  std::map<LoadedKernel*, Found> found_;
  std::map<std::string, uint64_t> counts_;
};

// Opened with the library; a chip that is not known leaves a driver without a GPU.
struct Start {
  Start() {
    const char* name = std::getenv("LUMEN_STAND_IN_AMD");
    const Chip* chip = find_chip(name ? name : "");
    if (!chip) {
      std::fprintf(stderr, "stand-in for libamdhip64: LUMEN_STAND_IN_AMD names no chip that is known: %s\n",
                   name ? name : "");
      fake_gpu()->devices = 0;
      return;
    }
    driver = std::make_unique<Driver>(*chip);
  }
  std::unique_ptr<Driver> driver;
} start;

}  // namespace
}  // namespace lumen::amd

// How many instructions LUMEN_STAND_IN_FAULT has changed.
extern "C" uint64_t lumen_stand_in_planted() {
  return lumen::amd::start.driver ? lumen::amd::start.driver->planted() : 0;
}
