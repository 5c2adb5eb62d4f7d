// lumen bench: the speed of models on this machine. `lumen bench kernels` is in bench_kernels.cpp.
#include <chrono>
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/infer/invariance.h"
#include "cli/infer/mapping.h"
#include "cli/inspect/bench_kernels.h"
#include "cli/inspect/bench_report.h"
#include "cli/names.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/synthetic.h"
#include "model/infer/measure/speed_many.h"

namespace lumen::cli {
namespace {

struct BenchFlags {
  std::vector<std::string> models, types;
  std::string shape, write, form = "md";
  std::vector<int64_t> prompts = {512}, generates = {128}, depths = {0}, sequences;
  std::vector<std::string> pairs;
  CacheTypes cache;
  AdapterFlags adapters;
  InvarianceFlag invariance;
  Mapping mapping;
  model::infer::SpeedOptions speed;
  bool no_warm_up = false, explain = false;
};

// The cross product of the tests and the numbers of sequences.
std::vector<model::infer::SpeedTest> together(const std::vector<model::infer::SpeedTest>& tests,
                                              const std::vector<int64_t>& sequences) {
  std::vector<model::infer::SpeedTest> out;
  for (const int64_t n : sequences) {
    for (model::infer::SpeedTest t : tests) {
      if (t.prompt > 0 && t.depth > 0)
        throw usage_error("{}: several sequences read their prompts from the beginning; give -p 0, or no -d", t.name());
      t.sequences = n;
      out.push_back(t);
    }
  }
  return out;
}

std::vector<model::infer::SpeedTest> tests_of(const BenchFlags& flags) {
  std::vector<model::infer::SpeedTest> tests;
  for (const int64_t depth : flags.depths) {
    for (const int64_t n : flags.prompts)
      if (n > 0) tests.push_back({n, 0, depth});
    for (const int64_t n : flags.generates)
      if (n > 0) tests.push_back({0, n, depth});
    for (const std::string& pair : flags.pairs) {
      const auto counts = two_counts(pair, ',');
      if (!counts) throw usage_error("--pg takes PROMPT,GENERATE, as in 512,128, not '{}'", pair);
      tests.push_back({counts->first, counts->second, depth});
    }
  }
  if (tests.empty()) throw usage_error("nothing to measure: all of -p and -n are 0");
  if (!flags.sequences.empty()) tests = together(tests, flags.sequences);
  constexpr int64_t kMost = model::infer::SessionOptions::kMostPositions;
  for (const model::infer::SpeedTest& t : tests)
    if (t.depth > kMost || t.prompt > kMost || t.generate > kMost || t.depth + t.prompt + t.generate > kMost)
      throw usage_error("{} would need more than the {} positions a context can have", t.name(), kMost);
  return tests;
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

class Bench {
 public:
  Bench(const Shared& shared, const BenchFlags& flags)
      : flags_(flags), form_(bench_form(flags.form)), tests_(tests_of(flags)), engine_(shared.engine(flags.explain)) {}

  void measure(const model::arch::Model& model, const std::string& file) {
    if (!flags_.sequences.empty() && !model.tokenizer)
      throw user_error("{} has no tokenizer, so that no tokens can be drawn", file);
    const auto adapters = flags_.adapters.read(model);
    const model::infer::LoadedModel loaded(engine_, model, adapters);
    if (flags_.explain && !ceilings_) {
      note("measuring the machine's ceilings");
      ceilings_ = engine_.measure_ceilings();
    }
    model::infer::SpeedOptions speed = flags_.speed;
    flags_.invariance.choose(engine_, &speed.session);
    for (const model::infer::SpeedTest& test : tests_) {
      if (interrupted().load()) return;
      BenchLine line;
      line.file = file;
      line.type = model_type(model);
      line.model_bytes = model.weight_bytes();
      line.parameters = model.weight_count();
      line.threads = engine_.threads();
      if (engine_.device().is_asynchronous()) line.gpu = engine_.device().describe();
      line.chunk = flags_.speed.session.chunk;
      line.machine = engine_.device().machine().name;
      const auto name_of = [](const FormatRef& f) { return f ? f->name : std::string("f32"); };
      line.type_k = name_of(flags_.speed.session.keys);
      line.type_v = name_of(flags_.speed.session.values);
      line.exact = flags_.speed.session.exact;
      line.time = time_now();
      std::string explained;
      line.speed = model::infer::measure_speed(
          loaded, test, speed,
          [&](const std::string& what) { progress_.update(fmt::format("{} | {}", line.type, what)); },
          [] { return interrupted().load(); }, ceilings_ ? &*ceilings_ : nullptr,
          flags_.explain ? &explained : nullptr);
      if (line.speed.seconds.empty()) return;
      progress_.finish(fmt::format("{} | {}: {:.2f} tokens/s", line.type, test.name(), line.speed.mean_rate()));
      put_text((first_ ? bench_head(form_) : "") + bench_line(form_, line, first_));
      first_ = false;
      if (flags_.explain) std::fputs(explained.c_str(), stderr);
    }
  }

  void finish() {
    if (!first_) put_text(bench_foot(form_));
  }

 private:
  const BenchFlags& flags_;
  BenchForm form_;
  std::vector<model::infer::SpeedTest> tests_;
  run::Engine engine_;
  std::optional<run::Ceilings> ceilings_;
  Progress progress_;
  bool first_ = true;
};

int bench(const Shared& shared, BenchFlags& flags) {
  if (flags.models.empty() == flags.shape.empty())
    throw Error(
        Exit::usage, "either a model file (-m) or a shape (--shape) is measured",
        fmt::format("`lumen bench -m model.gguf`, or without a file `lumen bench --shape {}`", example_size(1e9)));
  if (flags.types.empty()) flags.types = {example_format(4.5)};
  if (!flags.write.empty() && (flags.shape.empty() || flags.types.size() != 1))
    throw usage_error("--write keeps one synthetic model: give --shape and one --type");
  flags.speed.warm_up = !flags.no_warm_up;
  const model::arch::LibraryRef library = shared.library();
  flags.cache.choose(*library, &flags.speed.session);
  for (const std::string& type : flags.types)
    if (!library->recipe(type)) (void)named_format(library->formats(), type);
  if (!flags.sequences.empty()) flags.speed.session.narrow = model::infer::Narrow::apart;
  if (!flags.write.empty()) {
    model::arch::Model model = model::compress::synthetic_model(library, flags.shape, flags.types.front());
    model::compress::add_synthetic_tokenizer(model);
    model::arch::write_gguf(model, flags.write);
    note(fmt::format("wrote {}; measure it with -m", flags.write));
    return 0;
  }
  catch_interrupts();
  Bench bench(shared, flags);
  for (const std::string& file : flags.models) bench.measure(flags.mapping.read(shared, library, file), file);
  if (!flags.shape.empty())
    for (const std::string& type : flags.types) {
      model::arch::Model model = model::compress::synthetic_model(library, flags.shape, type);
      if (!flags.sequences.empty()) model::compress::add_synthetic_tokenizer(model);
      bench.measure(model, "");
    }
  bench.finish();
  return exit_code(interrupted().load() ? Exit::interrupted : Exit::ok);
}

}  // namespace

void add_bench(CLI::App& app, Command& command) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* sub = app.add_subcommand("bench", "Measure the speed of prompts and of token generation on this machine");
  auto* file = add_setting(*sub, "--model", flags->models);
  add_setting(*sub, "--shape", flags->shape);
  add_setting(*sub, "--type", flags->types)->excludes(file);
  auto* write = add_setting(*sub, "--write", flags->write);
  add_settings(*sub, "--n-prompt", flags->prompts, "--n-gen", flags->generates, "--pg", flags->pairs, "--n-depth",
               flags->depths);
  add_setting(*sub, "--sequences", flags->sequences)->check(whole(1, model::infer::kMostMeasured));
  add_settings(*sub, "--repetitions", flags->speed.repetitions, "--batch-size", flags->speed.session.chunk);
  flags->cache.add_flags(*sub);
  flags->adapters.add_flags(*sub);
  flags->mapping.add_flags(*sub);
  add_settings(*sub, "--output", flags->form, "--no-warmup", flags->no_warm_up, "--cpu-time", flags->speed.cpu_time,
               "--exact", flags->speed.session.exact);
  flags->invariance.add_to(*sub);
  add_setting(*sub, "--explain", flags->explain)->excludes(write);
  sub->footer([] {
    const std::string four = example_format(4.5), size = example_size(1e9);
    return fmt::format(
        "ppN reads a prompt of N tokens, tgN generates N tokens one by one, @ dN does so after N other tokens, and x N "
        "for N\n"
        "sequences together. t/s is mean and standard deviation of -r runs, after one that is not counted.\n"
        "A run is timed from token ids to logits. Progress goes to stderr, the table to stdout.\n\n"
        "{}\n"
        "{}\n\n"
        "Examples:\n"
        "  lumen bench -m model.gguf                                    pp512 and tg128 of a file\n"
        "  lumen bench --shape {} --type {} -r 3                no file: random weights\n"
        "  lumen bench -m model.gguf -p 0 -n 64 -d 0,4096 -o json       how generation slows down after a long "
        "context\n"
        "  lumen bench --shape {} --type {} -p 0 --explain      where the time of a token goes\n"
        "  lumen bench kernels --format {} -M 1                        one kernel, compared with the machine's peak",
        size_names(), format_names(), size, four, size, four, four);
  });
  add_shared_flags(*sub, command.shared);
  sub->require_subcommand(0, 1);
  add_bench_kernels(*sub, command);
  sub->callback([sub, flags, &command] {
    if (!sub->get_subcommands().empty()) return;
    command.action = [flags, shared = command.shared] { return bench(*shared, *flags); };
  });
}

}  // namespace lumen::cli
