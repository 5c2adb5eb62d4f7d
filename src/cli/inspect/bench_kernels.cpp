#include "cli/inspect/bench_kernels.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "cli/names.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "run/engine/roofline.h"

namespace lumen::cli {
namespace {

struct BenchKernelsFlags {
  std::vector<std::string> formats, shapes = {"2048x2048", "5632x2048", "2048x5632", "32000x2048"};
  std::vector<int64_t> rows = {1, 4, 32, 512};
  bool exact = false;
};

run::ProductShape shape_of(const std::string& text) {
  run::ProductShape shape;
  const auto counts = two_counts(text, 'x');
  if (!counts) throw usage_error("--shape takes ROWSxCOLUMNS of the weights, as in 5632x2048, not '{}'", text);
  std::tie(shape.n, shape.k) = *counts;
  return shape;
}

// Refuses a product that does not fit into memory even at one bit per weight, before anything is measured.
void require_room(run::Engine& engine, const run::ProductShape& s, int64_t rows) {
  const int64_t numbers = sizeof(float);
  engine.require_memory(fmt::format("a product with weights of {}x{}", s.n, s.k),
                        {{"weights, at a bit each", run::saturating_product(s.n, s.k) / 8},
                         {"activations", run::saturating_product(run::saturating_product(rows, s.k), numbers)},
                         {"results", run::saturating_product(run::saturating_product(rows, s.n), numbers)}},
                        "choose a smaller --shape or fewer --rows");
}

void print_ceilings(const run::Engine& engine, const run::Ceilings& c, const std::string& device) {
  std::string text = fmt::format("{}\nread  {:9.1f} GB/s\nf32   {:9.1f} GFLOP/s  fused multiply-add\n", device,
                                 c.read_bytes / 1e9, c.f32_flops / 1e9);
  for (const run::Ceilings::Row& row : c.rows)
    text += fmt::format("{:5} {:9.1f} GFLOP/s  {}\n", row.kind, row.flops / 1e9, row.name);
  put(text + "\n");
}

int measure(const Shared& shared, const BenchKernelsFlags& flags) {
  std::vector<run::ProductShape> shapes;
  for (const std::string& text : flags.shapes) shapes.push_back(shape_of(text));
  const model::arch::LibraryRef library = shared.library();
  std::vector<FormatRef> formats;
  for (const std::string& name : flags.formats) formats.push_back(named_format(library->formats(), name));
  if (formats.empty()) formats = library->formats().all();
  catch_interrupts();
  run::Engine engine = shared.engine();
  const int64_t most_rows = *std::max_element(flags.rows.begin(), flags.rows.end());
  for (const run::ProductShape& s : shapes) require_room(engine, s, most_rows);
  note("measuring the machine's ceilings");
  const run::Ceilings ceilings = engine.measure_ceilings();
  print_ceilings(engine, ceilings, engine.device().describe());
  put(fmt::format("{:<14} {:>12} {:>4} {:>10} {:>9} {:>8} {:>12}  {}\n", "format", "weights", "M", "us", "GFLOP/s",
                  "GB/s", "of ceiling", "plan"));
  for (const FormatRef& format : formats) {
    if (!format->encodes()) continue;
    for (run::ProductShape shape : shapes) {
      if (shape.k % format->block != 0) continue;
      for (const int64_t m : flags.rows) {
        if (interrupted().load()) return exit_code(Exit::interrupted);
        shape.m = m;
        const run::ProductTime t = run::time_product(engine, format, shape, flags.exact, ceilings);
        put(fmt::format("{:<14} {:>12} {:4} {:10.1f} {:9.1f} {:8.2f} {:6.0f}% {:5} {}\n", format->name,
                        fmt::format("{}x{}", shape.n, shape.k), m, t.seconds * 1e6, t.flops / t.seconds / 1e9,
                        t.bytes / t.seconds / 1e9, 100 * t.bound_seconds / t.seconds, t.ceiling, t.plan));
      }
    }
  }
  return 0;
}

}  // namespace

void add_bench_kernels(CLI::App& bench, Command& command) {
  auto flags = std::make_shared<BenchKernelsFlags>();
  CLI::App* sub =
      bench.add_subcommand("kernels", "Measure matrix products of every format, compared with the machine's peak");
  add_settings(*sub, "--format", flags->formats, "--shape", flags->shapes, "--rows", flags->rows, "--exact",
               flags->exact);
  sub->footer([] {
    return fmt::format(
        "The first lines are the machine's peaks, measured in the same run with all threads: memory reads, f32 "
        "multiply-adds,\n"
        "and each dot instruction. A product y[M, N] = x[M, K] w[N, K] is timed with weights that are not in the "
        "processor's\n"
        "cache. GB/s counts the bytes of the weights. The fraction is relative to the lower of the two limits.\n\n"
        "{}\n\n"
        "Examples:\n"
        "  lumen bench kernels                                        everything: some minutes\n"
        "  lumen bench kernels --format {} -M 1 --shape 5632x2048   one line",
        format_names(), example_format(4.5));
  });
  set_action(*sub, command, flags, measure);
}

}  // namespace lumen::cli
