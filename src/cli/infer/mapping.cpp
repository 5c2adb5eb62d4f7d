#include "cli/infer/mapping.h"

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/settings/declare.h"
#include "model/arch/in_memory.h"

namespace lumen::cli {
namespace {

constexpr double kSilent = 1;  // shorter loads print no note

}  // namespace

void Mapping::add_flags(CLI::App& app) {
  add_setting(app, "--mmap", is_mapped);
}

model::arch::Model Mapping::read(const Shared& shared, const model::arch::LibraryRef& library,
                                 const std::string& file) const {
  if (!is_mapped && shared.device != "cpu")
    throw usage_error("--no-mmap goes with --device cpu: a GPU has its own copy of the weights");
  model::arch::Model model = model::arch::read_model(library, file);
  if (is_mapped) return model;
  Progress progress;
  const Stopwatch watch;
  model::arch::copy_into_memory(&model, [&](int64_t done, int64_t all) {
    const double seconds = watch.seconds();
    if (seconds < kSilent) return;
    const double rate = done / seconds;
    progress.update(fmt::format("copying the weights: {} of {} MiB, {:.0f} MiB/s, {} left", done >> 20, all >> 20,
                                rate / (1 << 20), format_duration((all - done) / rate)));
  });
  return model;
}

}  // namespace lumen::cli
