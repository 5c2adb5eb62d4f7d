// The engine's device, cache, and conversion of host memory into and out of formats. Compiling is in compile.cpp,
// execution in execute.cpp.
#include "run/engine/engine.h"

#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads/threads.h"
#include "run/device/choose/choose.h"
#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/panels/panels.h"
#include "run/engine/roofline.h"
#include "run/engine/self_test_result.h"
#include "run/engine/verify/lone_steps/conversion.h"
#include "run/engine/verify/policy.h"
#include "run/engine/verify/trial/determinism.h"
#include "run/engine/verify/trial/row_trial.h"
#include "run/engine/verify/trial/soundness.h"
#include "run/engine/verify/verify.h"

namespace lumen::run {

namespace {

// The next less capable table for this processor; null: there is none.
machine::MachineRef less_able(const machine::Machine& than) {
  machine::MachineRef best;
  for (const machine::MachineRef& m : machine::all_machines()) {
    if (m->name == than.name) return best;
    if (machine::runs_here(*m)) best = m;
  }
  // For a machine not in the table that has a matrix unit, the next is the processor without it.
  return than.kind == machine::Kind::cpu && !than.tiles.empty() ? best : nullptr;
}

}  // namespace

struct Engine::State {
  CompileContext context;
  Options options;
  DeviceChoice choice;
  std::filesystem::path folder;
  std::shared_ptr<SealedFolder> kept;  // the folder's contents
  std::vector<RefusedRow> refused;
  std::shared_ptr<TrialResults> trials;  // null: kernels are used untested
  std::optional<CompileContext> host;    // the CPU, if the device's kernels are wrong
  CompileReport totals;
  bool timed = false;

  // Opens the device with a machine table; null: its own.
  CompileContext opened(machine::MachineRef machine) const {
    CompileContext out;
    out.device = open_device(choice, std::move(machine), options.threads, load_here);
    out.cache = std::make_shared<KernelCache>(out.device, kept);
    out.threads = options.threads == 0 ? usable_cores() : options.threads;
    return out;
  }
  void open(machine::MachineRef machine) { context = opened(std::move(machine)); }

  // Excludes incorrect parts: instructions, then the most capable table in favour of a correct one, then the device.
  void require_sound() {
    const auto again = [&](machine::MachineRef m) { return opened(std::move(m)); };
    DeviceResult outcome = known_or_tried(context, again);
    for (machine::MachineRef less; !outcome.wrong.empty(); outcome = known_or_tried(context, again)) {
      const std::string refusal = fmt::format("{} is refused: its kernels disagree with the evaluator ({})",
                                              context.device->describe(), outcome.wrong);
      const bool on_processor = !context.device->is_asynchronous();
      less = on_processor && !options.machine ? less_able(context.device->machine()) : nullptr;
      const bool has_other =
          less || (!on_processor && choice.kind == DeviceChoice::Kind::automatic && !options.machine);
      if (!has_other)
        throw Error(Exit::hardware, refusal,
                    on_processor ? "`lumen doctor` tests it again; --machine takes another one's code"
                                 : "`lumen doctor` tests it again; --device cpu computes right");
      warn(refusal);
      if (!on_processor) choice = {};
      open(less);
      note(fmt::format("device: {}", context.device->describe()));
      if (on_processor || !folder.empty()) continue;
      return;
    }
    if (outcome.refused.empty()) return;
    refused = outcome.refused;
    machine::Machine machine = context.device->machine();
    for (const RefusedRow& r : refused) {
      warn(fmt::format("{}: {} is not used, it computes wrongly ({})", context.device->describe(), r.row, r.why));
      machine = without_row(std::move(machine), r.row);
    }
    open(std::make_shared<const machine::Machine>(std::move(machine)));
  }

  // From here on kernels are tried before use, if the policy requires it.
  void try_launches() {
    if (tries_launches(*context.device)) context.judge = trials = std::make_shared<TrialResults>(context);
  }

  // Counts the trials during `made`, and reports them for `what`.
  template <typename Make>
  auto with_trials(const std::string& what, Make made) const {
    const LaunchTrialCounts before = trials ? trials->counts() : LaunchTrialCounts{};
    auto out = made();
    const LaunchTrialCounts now = trials ? trials->counts() : LaunchTrialCounts{};
    const auto kernels = [](int64_t count) { return count == 1 ? "a kernel" : fmt::format("{} kernels", count); };
    if (now.tried > before.tried)
      verbose(fmt::format("'{}': {} tried in {:.1f} s, {} refused", what, kernels(now.tried - before.tried),
                          now.seconds - before.seconds, now.refused - before.refused));
    if (now.not_tried > before.not_tried)
      note(fmt::format("'{}': {} could not be tried, and is used without a test; -v prints why", what,
                       kernels(now.not_tried - before.not_tried)));
    return out;
  }

  OpenProcessor processor() {
    return [this] {
      if (host) return *host;
      CompileContext out;
      out.device = open_cpu(machine::native_machine(), options.threads, load_here);
      out.cache = std::make_shared<KernelCache>(out.device, kept);
      out.threads = context.threads;
      if (tries_launches(*out.device)) out.judge = std::make_shared<TrialResults>(out);
      return *(host = out);
    };
  }

  void add(const CompileReport& r) {
    totals.kernels += r.kernels;
    totals.compiled += r.compiled;
    totals.cached += r.cached;
    totals.seconds += r.seconds;
  }

  std::unique_ptr<LoadedSteps> load(const LoneSteps& work) {
    CompileReport report;
    auto ready = with_trials(work.meaning, [&] { return run::load_steps(context, work, processor(), &report); });
    add(report);
    return ready;
  }

  std::shared_ptr<const Panels> panels(const LoneSteps& work, const Panels::Shape& shape) {
    CompileReport report;
    auto made = with_trials(work.meaning, [&] {
      return std::make_shared<const Panels>(context, choose_steps(context, work, processor(), &report), shape, &report);
    });
    add(report);
    return made;
  }

  // Runs a conversion. `on_device`: the source, if it is already on the device.
  void convert(const LoneSteps& work, const void* from, int64_t from_bytes, void* to, int64_t to_bytes,
               std::span<const float> beside = {}, void* on_device = nullptr) {
    const std::unique_ptr<LoadedSteps> ready = load(work);
    const int64_t to_at = on_device ? 0 : aligned(from_bytes), beside_at = to_at + aligned(to_bytes);
    const std::shared_ptr<void> memory = allocate_shared(context.device, beside_at + aligned(beside.size_bytes()));
    auto* base = static_cast<std::byte*>(memory.get());
    if (!on_device) context.device->copy_in(base, from, from_bytes);
    if (!beside.empty()) context.device->copy_in(base + beside_at, beside.data(), beside.size_bytes());
    void* const values[] = {on_device ? on_device : base, base + to_at, base + beside_at};
    ready->launch(values);
    ready->finish();
    context.device->copy_out(to, base + to_at, to_bytes);
  }

  std::vector<uint8_t> encode(const FormatRef& f, const float* x, void* on_device, int64_t rows, int64_t columns,
                              std::span<const float> importance) {
    std::vector<uint8_t> blob(blob_layout(*f, rows, columns).total);
    if (rows == 0 || columns == 0) return blob;
    const auto given = std::ssize(importance);
    if (given != 0 && given != columns && given != rows * columns)
      throw user_error("{} importances for {} columns", given, columns);
    for (const float w : importance)
      if (!(w >= 0) || std::isinf(w)) throw user_error("an importance is {}: it has to be finite, and not negative", w);
    const synth::Importance kind = given == 0         ? synth::Importance::none
                                   : given == columns ? synth::Importance::columns
                                                      : synth::Importance::elements;
    if (!f->weighs()) importance = {};
    convert(encode_steps(f, rows, columns, kind), x, rows * columns * 4, blob.data(), blob.size(), importance,
            on_device);
    return blob;
  }
};

Engine::Engine(Options options) : state_(new State) {
  state_->folder = cache_folder(options.cache_folder);
  state_->kept = open_cache(options.cache_folder);
  state_->options = options;
  state_->choice = parse_device(options.device);
  state_->timed = options.timed;
  state_->open(options.machine);
  if (options.tries && (state_->context.device->is_asynchronous() || !state_->folder.empty())) state_->require_sound();
  if (options.tries) state_->try_launches();
  if (options.libraries) {
    verbose(state_->context.device->open_products());
    state_->context.products = std::make_shared<Tuner>(state_->context.cache, state_->context.threads);
  }
  if (options.tune) state_->context.tuner = std::make_shared<Tuner>(state_->context.cache, state_->context.threads);
}

Engine::~Engine() = default;

Device& Engine::device() {
  return *state_->context.device;
}

void Engine::require_memory(const std::string& who, const MemoryNeeds& needs, const std::string& hint) {
  run::require_memory(device(), who, needs, hint);
}

std::shared_ptr<Program> Engine::compile(const graph::Graph& g, const CompileOptions& options) {
  LaunchList list = state_->with_trials(g.name, [&] { return run::compile(state_->context, g, options); });
  state_->add(list.report);
  std::shared_ptr<void> lent = options.lender ? options.lender->lend(list.arena_bytes) : nullptr;
  return make_program(state_->context.device, state_->context.cache, std::move(list), state_->timed, std::move(lent));
}

int64_t Engine::arena_bytes(const graph::Graph& g, const CompileOptions& options) {
  return run::arena_bytes(state_->context, g, options);
}

std::vector<uint8_t> Engine::encode(const FormatRef& f, const float* x, int64_t rows, int64_t columns,
                                    std::span<const float> importance) {
  return state_->encode(f, x, nullptr, rows, columns, importance);
}

std::vector<uint8_t> Engine::encode(const FormatRef& f, const DeviceTensorRef& x, std::span<const float> importance) {
  const graph::Type& type = x->type();
  LUMEN_CHECK(type.shape.size() == 2 && type.element == graph::Element{}, "{} to be encoded", graph::print(type));
  return state_->encode(f, nullptr, x->data(), type.shape[0].number(), type.shape[1].number(), importance);
}

std::vector<float> Engine::decode(const FormatRef& f, const uint8_t* blob, int64_t rows, int64_t columns) {
  std::vector<float> x(rows * columns);
  if (x.empty()) return x;
  state_->convert(decode_steps(f, rows, columns), blob, blob_layout(*f, rows, columns).total, x.data(),
                  rows * columns * 4);
  return x;
}

std::shared_ptr<const Panels> Engine::encode_panels(const FormatRef& f, int64_t rows, int64_t columns, bool weighed) {
  const auto importance = weighed ? synth::Importance::columns : synth::Importance::none;
  return state_->panels(encode_steps(f, rows, columns, importance),
                        {f, rows, columns, Panels::Direction::encode, weighed});
}

std::shared_ptr<const Panels> Engine::decode_panels(const FormatRef& f, int64_t rows, int64_t columns) {
  return state_->panels(decode_steps(f, rows, columns), {f, rows, columns, Panels::Direction::decode});
}

std::unique_ptr<LoadedSteps> Engine::load_steps(const LoneSteps& work) {
  return state_->load(work);
}

std::shared_ptr<std::byte> Engine::allocate(int64_t bytes) {
  return std::static_pointer_cast<std::byte>(allocate_shared(state_->context.device, bytes));
}

int Engine::threads() const {
  return state_->context.threads;
}

Soundness Engine::try_kernels(bool all) {
  Soundness found = find_soundness(
      state_->context, trials_for(device().machine(), all ? TrialDepth::everything : TrialDepth::usual, threads()),
      [&](machine::MachineRef m) { return state_->opened(std::move(m)); });
  if (found.wrong.empty()) try_other_rows(state_->context, &found);
  for (CheckLine& line : rows_not_chosen(device().machine(), found.lines)) found.lines.push_back(std::move(line));
  if (found.whole || !found.wrong.empty()) keep_result(state_->context, result_of(found));
  if (found.machine) state_->open(found.machine);
  state_->refused = found.refused;
  return found;
}

const std::vector<RefusedRow>& Engine::refused() const {
  return state_->refused;
}

Determinism Engine::prove_determinism() {
  State& s = *state_;
  if (s.context.device->is_asynchronous()) return run::prove_determinism(s.context, nullptr);
  CompileContext alone = s.context;
  alone.device = open_cpu(std::make_shared<const machine::Machine>(s.context.device->machine()), 1, load_here);
  alone.cache = std::make_shared<KernelCache>(alone.device, s.kept);
  return run::prove_determinism(s.context, &alone);
}

Ceilings Engine::measure_ceilings() {
  return run::measure_ceilings(state_->context);
}

double Engine::measure_memory() {
  return run::measure_memory(state_->context);
}

void Engine::finish_tuning() {
  if (state_->context.tuner) state_->context.tuner->wait();
}

const CompileReport& Engine::totals() const {
  return state_->totals;
}

}  // namespace lumen::run
