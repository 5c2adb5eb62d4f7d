// See execute.h. run() executes the list without allocations or look-ups; addresses change only in bind(). For an
// asynchronous device it waits once, at the end, and then reads every launch's status; from the second run with the
// same addresses on, such a device replays the whole list as one recording. Proved by
// tests/run/engine/compile_test.cpp.
#include "run/engine/program/execute.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/file/cut.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "kernel/loop/rules.h"
#include "run/engine/program/explain.h"

namespace lumen::run {
namespace {

using Clock = std::chrono::steady_clock;

class CompiledProgram : public Program {
 public:
  CompiledProgram(std::shared_ptr<Device> device, std::shared_ptr<KernelCache> cache, LaunchList list, bool timed,
                  std::shared_ptr<void> lent)
      : device_(std::move(device)),
        cache_(std::move(cache)),
        list_(std::move(list)),
        borrows_(lent != nullptr),
        arena_(lent ? std::move(lent) : allocate_shared(device_, list_.arena_bytes)),
        tensors_(list_.inputs.size()),
        times_(list_.launches.size()) {
    if (device_->is_asynchronous()) {
      statuses_.resize(std::max<size_t>(1, list_.launches.size()));
      shared_statuses_ = allocate_shared(device_, status_bytes());
      if (timed) marks_ = device_->make_marks(list_.launches.size() + 1);
      find_trials();
    }
    for (const Launch& launch : list_.launches) {
      std::vector<void*>& buffers = buffers_.emplace_back();
      for (const BufferAddress& at : launch.addresses) buffers.push_back(address(at));
    }
  }

  ~CompiledProgram() override {
    const char* trace = std::getenv("LUMEN_TRACE");
    if (trace && std::string_view(trace) == "1") fmt::print(stderr, "{}", explain(nullptr));
  }

  void bind(const std::string& name, DeviceTensorRef tensor) override {
    const size_t i = input_number(name);
    const ProgramInput& input = list_.inputs[i];
    LUMEN_CHECK(tensor, "input '{}' is bound to nothing", name);
    if (tensor->type() != input.type)
      throw usage_error("input '{}' is {}, not {}", name, graph::print(input.type), graph::print(tensor->type()));
    if (!tensors_[i] || tensors_[i]->data() != tensor->data()) forget_recording();
    tensors_[i] = std::move(tensor);
    checked_ = false;
    for (size_t k = 0; k < list_.launches.size(); ++k)
      for (size_t b = 0; b < list_.launches[k].addresses.size(); ++b)
        if (is_in_input(list_.launches[k].addresses[b], i))
          buffers_[k][b] = static_cast<std::byte*>(tensors_[i]->data()) + list_.launches[k].addresses[b].offset;
  }

  void unbind() override {
    forget_recording();
    for (DeviceTensorRef& tensor : tensors_) tensor = nullptr;
    checked_ = false;
  }

  void run() override {
    require_untouched_pages();
    if (!checked_) check_inputs();
    if (shared_statuses_) {
      run_ahead();
    } else {
      run_step_by_step();
    }
    ++runs_;
  }

  void enqueue() override {
    require_untouched_pages();
    if (!checked_) check_inputs();
    if (!shared_statuses_) return run_step_by_step();
    walk([&](size_t i) { start(i, device_statuses() + i); });
  }

  void check() override {
    if (!shared_statuses_) return;
    device_->copy_out(statuses_.data(), shared_statuses_.get(), status_bytes());
    check_statuses();
  }

  void set_hooks(std::shared_ptr<const LaunchHooks> hooks) override {
    LUMEN_CHECK(!hooks || shared_statuses_, "hooks of launches that are waited for");
    hooks_ = std::move(hooks);
    before_.clear();
    behind_.clear();
    if (!hooks_) return;
    for (size_t i = 0; i < hooks_->read.size(); ++i)
      before_.emplace(std::max<int64_t>(0, first_use(hooks_->read[i])), i);
    for (size_t i = 0; i < hooks_->written.size(); ++i) behind_.emplace(last_use(hooks_->written[i]), i);
  }

  int64_t first_use(const std::string& input) const override {
    const BufferAddress at = input_address(input_number(input));
    for (size_t i = 0; i < list_.launches.size(); ++i)
      if (touches(list_.launches[i], at, 0)) return i;
    return -1;
  }

  int64_t last_use(const std::string& written) const override {
    BufferAddress at;
    int64_t bytes = 0;
    const auto result = std::find_if(list_.results.begin(), list_.results.end(),
                                     [&](const ProgramResult& r) { return r.name == written; });
    if (result != list_.results.end()) {
      at = result->place;
      bytes = graph::byte_size(result->type);
    } else {
      at = input_address(input_number(written));
    }
    for (int64_t i = std::ssize(list_.launches) - 1; i >= 0; --i)
      if (touches(list_.launches[i], at, bytes)) return i;
    return -1;
  }

  DeviceTensorRef result(const std::string& name) override {
    for (const ProgramResult& r : list_.results) {
      if (r.name != name) continue;
      switch (r.place.in) {
        case BufferAddress::In::input:
          return tensors_[r.place.at];
        case BufferAddress::In::constant:
          return list_.constants[r.place.at];
        case BufferAddress::In::arena:
          return std::make_shared<DeviceTensor>(*device_, r.type, arena_, address(r.place));
      }
    }
    LUMEN_UNREACHABLE("no result '{}'", name);
  }

  std::vector<std::string> input_names() const override {
    std::vector<std::string> names;
    for (const ProgramInput& input : list_.inputs) names.push_back(input.name);
    return names;
  }
  graph::Type input_type(const std::string& name) const override { return list_.inputs[input_number(name)].type; }
  const CompileReport& report() const override { return list_.report; }
  int64_t arena_bytes() const override { return list_.arena_bytes; }
  int64_t own_bytes() const override { return borrows_ ? 0 : list_.arena_bytes; }
  std::shared_ptr<void> lend(int64_t bytes) const override {
    return bytes > 0 && bytes <= list_.arena_bytes ? arena_ : nullptr;
  }

  std::string explain(const Ceilings* ceilings) const override {
    const double cycles = ceilings && ceilings->cycles > 0 ? ceilings->cycles : device_->machine().costs.hertz;
    std::vector<OfferedPlans> offers;
    for (size_t i = 0; ceilings && i < list_.launches.size(); ++i)
      if (!list_.launches[i].bids.empty()) offers.push_back({plan_of(list_.launches[i]), list_.launches[i].bids});
    return times_table(join_equal(times()), runs_, ceilings) + parameters_table(parameter_uses()) +
           bids_table(offers, cycles) + fmt::format("{} of memory for values\n", size_text(list_.arena_bytes));
  }

  std::vector<KernelTime> times() const override {
    std::vector<KernelTime> out;
    for (size_t i = 0; i < list_.launches.size(); ++i) {
      const Launch& launch = list_.launches[i];
      out.push_back({plan_of(launch), launch.times, times_[i], launch.flops, launch.bytes, launch.cycles});
    }
    return out;
  }

  void forget_times() override {
    std::fill(times_.begin(), times_.end(), 0.0);
    runs_ = 0;
  }

  double measure(int runs) override {
    constexpr int kBefore = 3;  // the last warm-up run replays the second one's recording
    const std::vector<double> times = times_;
    const int64_t runs_before = runs_;
    pauses_marks_ = true;
    std::vector<double> seconds;
    for (int i = 0; i < kBefore + runs; ++i) {
      const Stopwatch watch;
      run();
      if (i >= kBefore) seconds.push_back(watch.seconds());
    }
    pauses_marks_ = false;
    forget_recording();
    times_ = times;
    runs_ = runs_before;
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }

 private:
  void run_step_by_step() {
    LaunchStatus status;
    Clock::time_point last = Clock::now();
    walk([&](size_t i) {
      const Launch& launch = list_.launches[i];
      if (launch.autotuner) launch.autotuner->next();
      start(i, &status);
      const Clock::time_point now = Clock::now();
      const double seconds = std::chrono::duration<double>(now - last).count();
      if (launch.autotuner) launch.autotuner->record(seconds);
      times_[i] += seconds;
      last = now;
      if (status.code != 0) throw failure(launch, status);
    });
    await(list_.awaited);
    device_->synchronize();
  }

  // Visits every launch in order, those in loops once for each step.
  template <typename Visit>
  void walk(const Visit& visit) {
    steps_.clear();  // an error may have left the last visit inside a loop
    walk(0, list_.launches.size(), list_.loops, visit);
  }
  template <typename Visit>
  void walk(size_t begin, size_t end, const std::vector<Loop>& loops, const Visit& visit) {
    size_t i = begin;
    for (const Loop& loop : loops) {
      for (; i < loop.begin; ++i) visit(i);
      walk(loop, visit);
      i = loop.end;
    }
    for (; i < end; ++i) visit(i);
  }
  template <typename Visit>
  void walk(const Loop& loop, const Visit& visit) {
    steps_.push_back(0);
    for (int64_t n = 0; n < loop.steps; ++n) {
      steps_.back() = loop.reverse ? loop.steps - 1 - n : n;
      walk(loop.begin, loop.end, loop.inside, visit);
    }
    steps_.pop_back();
  }
  // Buffers of a launch in the current step.
  std::span<void* const> buffers_now(size_t i) {
    if (steps_.empty()) return buffers_[i];
    moved_ = buffers_[i];
    const std::vector<BufferAddress>& addresses = list_.launches[i].addresses;
    for (size_t b = 0; b < moved_.size(); ++b) {
      const auto& turns = addresses[b].turns;
      for (size_t d = 0; d < turns.size(); ++d)
        moved_[b] =
            static_cast<std::byte*>(moved_[b]) + (turns[d].alternates ? steps_[d] % 2 : steps_[d]) * turns[d].bytes;
    }
    return moved_;
  }
  const graph::Graph& graph_of(const Launch& launch) const { return launch.of ? *launch.of : list_.graph; }

  // Launches everything, then waits. The first failure in launch order is reported: later launches may have used its
  // invalid results.
  void run_ahead() {
    timed_trials_ = trials_to_time();
    Recorded& recorded = recorded_with_hooks();
    if (timed_trials_) recorded.recording = nullptr;
    if (!hooks_) device_->hold_awaited();
    if (hooks_ && hooks_->begin) hooks_->begin();
    if (!recorded.recording && !timed_trials_ && recorded.same_addresses > 0 && may_record()) record(recorded);
    if (recorded.recording) {
      device_->replay(*recorded.recording);
    } else {
      launch_all();
      ++recorded.same_addresses;
    }
    if (hooks_ && hooks_->launched) hooks_->launched();
    device_->copy_out(statuses_.data(), shared_statuses_.get(), status_bytes());
    if (times_kernels())
      for (size_t i = 0; i < times_.size(); ++i) times_[i] += marks_->seconds(i, i + 1);
    record_trials();
    check_statuses();
  }

  void check_statuses() {
    for (size_t i = 0; i < list_.launches.size(); ++i) {
      if (statuses_[i].code == 0) continue;
      const LaunchStatus failed = statuses_[i];
      std::fill(statuses_.begin(), statuses_.end(), LaunchStatus{});
      device_->copy_in(shared_statuses_.get(), statuses_.data(), status_bytes());
      throw failure(list_.launches[i], failed);
    }
  }

  void launch_all() {
    LaunchStatus* const statuses = device_statuses();
    if (times_kernels()) marks_->set(0);
    if (hooks_ && hooks_->at_begin) hooks_->at_begin();
    call(behind_, -1);
    const auto launch = [&](size_t i) {
      const std::optional<size_t> trial = timed_trials_ ? trial_marks_of_[i] : std::nullopt;
      if (trial) trial_marks_->set(2 * *trial);
      start(i, statuses + i);
      if (trial) trial_marks_->set(2 * *trial + 1);
      // In a loop, the first kernel is charged with all steps but the last.
      if (times_kernels()) marks_->set(i + 1);
    };
    steps_.clear();
    size_t next = 0;
    const auto launch_until = [&](size_t end) {
      for (; next < end; ++next) {
        call(before_, next);
        launch(next);
        call(behind_, next);
      }
    };
    for (const Loop& loop : list_.loops) {  // hooks of a launch in a loop apply to the whole loop
      launch_until(loop.begin);
      for (size_t i = loop.begin; i < loop.end; ++i) call(before_, i);
      walk(loop, launch);
      for (size_t i = loop.begin; i < loop.end; ++i) call(behind_, i);
      next = loop.end;
    }
    launch_until(list_.launches.size());
    await(list_.awaited);
    if (hooks_ && hooks_->at_end) hooks_->at_end();
  }

  // Calls the hooks of one launch, in the order of their names.
  void call(const std::multimap<int64_t, size_t>& hooks, int64_t launch) const {
    const auto [first, end] = hooks.equal_range(launch);
    for (auto at = first; at != end; ++at)
      (&hooks == &before_ ? hooks_->before_read : hooks_->when_written)(at->second);
  }

  // Whether it uses a buffer, or any that starts within `bytes` of the arena.
  static bool touches(const Launch& launch, const BufferAddress& place, int64_t bytes) {
    return std::any_of(launch.addresses.begin(), launch.addresses.end(), [&](const BufferAddress& a) {
      if (place.in != BufferAddress::In::arena || a.in != place.in) return a.in == place.in && a.at == place.at;
      return a.at >= place.at && a.at < place.at + std::max<int64_t>(bytes, 1);
    });
  }

  // ---- Trials on asynchronous devices. A kernel's launches are timed in the first run, which is not recorded.
  // Replayed runs count with that time until other plans are requested; while those are tried nothing is recorded, and
  // each run tries one plan of each kernel.
  struct TimedKernel {
    std::shared_ptr<Autotuner> autotuner;
    std::vector<size_t> marks;  // pairs, one per launch
    double seconds = 0;         // per launch in the first run
  };

  void find_trials() {
    trial_marks_of_.resize(list_.launches.size());
    size_t count = 0;
    for (size_t i = 0; i < list_.launches.size(); ++i) {
      const std::shared_ptr<Autotuner>& autotuner = list_.launches[i].autotuner;
      if (!autotuner) continue;
      auto trial =
          std::find_if(trials_.begin(), trials_.end(), [&](const TimedKernel& t) { return t.autotuner == autotuner; });
      if (trial == trials_.end()) trial = trials_.insert(trials_.end(), {autotuner, {}, 0});
      trial->marks.push_back(count);
      trial_marks_of_[i] = count++;
    }
    if (count == 0) return;
    trial_marks_ = device_->make_marks(2 * count);
    if (trial_marks_) return;
    for (Launch& launch : list_.launches) launch.autotuner = nullptr;  // a device without a clock
    trials_.clear();
  }

  bool trials_to_time() {
    bool times = false;
    for (const TimedKernel& t : trials_) {
      t.autotuner->next();  // other plans may have arrived
      times = times || t.autotuner->tries() || (t.seconds == 0 && !t.autotuner->done());
    }
    return times;
  }

  void record_trials() {
    for (TimedKernel& t : trials_) {
      if (t.autotuner->done()) continue;
      if (timed_trials_) {
        double seconds = 0;
        for (const size_t pair : t.marks) seconds += trial_marks_->seconds(2 * pair, 2 * pair + 1);
        if (const double each = seconds / t.marks.size(); t.autotuner->tries()) {
          t.autotuner->record(each);
          continue;
        } else {
          t.seconds = each;
        }
      }
      t.autotuner->record(t.seconds * t.marks.size());
    }
  }

  const std::string& plan_of(const Launch& launch) const {
    return launch.autotuner ? launch.autotuner->best().plan : launch.plan;
  }

  Error failure(const Launch& launch, LaunchStatus status) const {
    const auto instance = size_t(status.code / loop::kInstanceCodes);
    status.code %= loop::kInstanceCodes;
    return guard_error(graph_of(launch), instance < launch.blamed.size() ? launch.blamed[instance] : -1, status);
  }

  // Factors of products that are parameters, possibly converted before.
  std::vector<ParameterUse> parameter_uses() const {
    std::vector<ParameterUse> uses;
    for (const Launch& launch : list_.launches) {
      const graph::Graph& g = graph_of(launch);
      if (!launch.is_last) continue;  // earlier steps are preparations
      for (const graph::ValueId node : launch.blamed) {
        if (node < 0) continue;  // not part of a plan
        const graph::Op op = g[node].op;
        if (op != graph::Op::contract_ && op != graph::Op::contract_gather_) continue;
        for (size_t k = 0; k < 2; ++k) {
          graph::ValueId v = g[node].operands[k];
          while (g[v].op != graph::Op::input_ && g[v].operands.size() == 1) v = g[v].operands[0];
          if (g[v].op != graph::Op::input_ || g[v].attributes.role != graph::Role::parameter) continue;
          const graph::Element& e = g[v].type.element;
          uses.push_back({fmt::format("{} {}", g[v].attributes.name,
                                      e.format ? e.format->name : std::string(scalar_name(e.scalar))),
                          plan_of(launch)});
        }
      }
    }
    return uses;
  }

  void await(const std::vector<size_t>& tickets) const {
    if (!list_.exchange.await) return;
    for (const size_t ticket : tickets) list_.exchange.await(ticket);
  }

  void start(size_t i, LaunchStatus* status) {
    const Launch& launch = list_.launches[i];
    await(launch.awaited);
    if (launch.exchange) {
      if (!list_.exchange.await) device_->synchronize();
      list_.exchange.begin(*launch.exchange, buffers_[i][0], buffers_[i][1], launch.piece_bytes, launch.ticket);
    } else if (launch.product) {
      launch.product->multiply(buffers_now(i));
    } else if (launch.autotuner) {
      const Autotuner::Plan& plan = launch.autotuner->current();
      device_->launch(plan.kernel, buffers_now(i), plan.launch_config, status);
    } else {
      device_->launch(launch.kernel, buffers_now(i), launch.launch_config, status);
    }
  }

  bool times_kernels() const { return marks_ && !pauses_marks_; }
  bool may_record() const {
    return (!list_.exchange || list_.exchange.await) && !times_kernels() && device_->records();
  }

  // One for each set of hooks used since an address changed.
  struct Recorded {
    std::shared_ptr<const LaunchHooks> hooks;
    std::unique_ptr<Device::Recording> recording;
    int64_t same_addresses = 0;  // runs since an address changed
  };
  Recorded& recorded_with_hooks() {
    const auto found =
        std::find_if(recorded_.begin(), recorded_.end(), [&](const Recorded& r) { return r.hooks == hooks_; });
    return found != recorded_.end() ? *found : recorded_.emplace_back(Recorded{hooks_, nullptr, 0});
  }

  void record(Recorded& to) {
    device_->begin_recording();
    try {
      launch_all();
    } catch (const Error&) {
      // Recording failed; launching one by one shows whether it can be launched at all.
    }
    to.recording = device_->end_recording();
  }

  void forget_recording() { recorded_.clear(); }

  static bool is_in_input(const BufferAddress& at, size_t input) {
    return at.in == BufferAddress::In::input && at.at == int64_t(input);
  }
  static BufferAddress input_address(size_t input) { return {BufferAddress::In::input, static_cast<int64_t>(input)}; }
  LaunchStatus* device_statuses() const { return static_cast<LaunchStatus*>(shared_statuses_.get()); }
  int64_t status_bytes() const { return statuses_.size() * sizeof(LaunchStatus); }

  void* address(const BufferAddress& at) const {
    switch (at.in) {
      case BufferAddress::In::input:
        return nullptr;  // set by bind()
      case BufferAddress::In::constant:
        return static_cast<std::byte*>(list_.constants[at.at]->data()) + at.offset;
      case BufferAddress::In::arena:
        return static_cast<std::byte*>(arena_.get()) + at.at;
    }
    return nullptr;
  }

  size_t input_number(const std::string& name) const {
    for (size_t i = 0; i < list_.inputs.size(); ++i)
      if (list_.inputs[i].name == name) return i;
    LUMEN_UNREACHABLE("no input '{}'", name);
  }

  // Checks that all inputs are bound, and that written memory belongs to one input only: kernels assume no aliasing.
  void check_inputs() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i] && list_.inputs[i].used)
        throw usage_error("input '{}' has no value: bind it before running", list_.inputs[i].name);
      if (!list_.inputs[i].written) continue;
      for (size_t j = 0; j < tensors_.size(); ++j)
        if (i != j && tensors_[j] && tensors_[j]->data() == tensors_[i]->data())
          throw usage_error("inputs '{}' and '{}' share memory, and the first is updated", list_.inputs[i].name,
                            list_.inputs[j].name);
    }
    checked_ = true;
  }

  std::shared_ptr<Device> device_;
  std::shared_ptr<KernelCache> cache_;
  LaunchList list_;
  bool borrows_ = false;
  std::shared_ptr<void> arena_;
  std::vector<DeviceTensorRef> tensors_;     // by input
  std::vector<std::vector<void*>> buffers_;  // by launch, for the first index of loops
  std::vector<int64_t> steps_;               // current indices of the enclosing loops
  std::vector<void*> moved_;                 // buffers of the current step
  std::vector<double> times_;                // seconds by launch, over all runs
  // Asynchronous devices: a status per launch, all zero between runs.
  std::vector<LaunchStatus> statuses_;
  std::shared_ptr<void> shared_statuses_;
  std::unique_ptr<Device::Marks> marks_;               // launches are timed
  bool pauses_marks_ = false;                          // .. but not at the moment
  std::vector<TimedKernel> trials_;                    // by autotuner
  std::vector<std::optional<size_t>> trial_marks_of_;  // by launch
  std::unique_ptr<Device::Marks> trial_marks_;
  bool timed_trials_ = false;  // in this run
  std::vector<Recorded> recorded_;
  std::shared_ptr<const LaunchHooks> hooks_;
  std::multimap<int64_t, size_t> before_, behind_;  // numbers of hooks, by launch
  bool checked_ = false;
  int64_t runs_ = 0;
};

// The input from which a value is computed, through first operands.
std::string source_name(const graph::Graph& g, graph::ValueId v) {
  while (g[v].op != graph::Op::input_ && !g[v].operands.empty()) v = g[v].operands[0];
  return g[v].op == graph::Op::input_ ? g[v].attributes.name : g[v].label;
}

}  // namespace

Error guard_error(const graph::Graph& g, graph::ValueId node, const LaunchStatus& status) {
  const std::string place = node < 0 || g[node].label.empty() ? "" : fmt::format(" (in {})", g[node].label);
  switch (status.code) {
    case loop::kGuardIndex: {
      LUMEN_CHECK(node >= 0, "an index guard without a node");
      const graph::Node& n = g[node];
      const bool product = n.op == graph::Op::contract_gather_ || n.op == graph::Op::contract_scatter_;
      const graph::Type& rows = n.op == graph::Op::gather_            ? g[n.operands[0]].type
                                : n.op == graph::Op::contract_gather_ ? g[n.operands[1]].type
                                                                      : n.type;
      return Error(Exit::user, fmt::format("{} '{}': index {} is outside 0..{}{}", graph::op_info(n.op).name,
                                           source_name(g, n.operands[product ? 2 : 1]), status.detail,
                                           rows.shape[0].number() - 1, place));
    }
    case loop::kGuardUpdate:
      LUMEN_CHECK(node >= 0, "an update guard without a node");
      return Error(Exit::user, fmt::format("update of '{}': position {} does not fit into {}{}", source_name(g, node),
                                           status.detail, graph::print(g[node].type), place));
    case loop::kGuardFinite:
      return Error(Exit::numeric, fmt::format("element {} is not a number the format can hold{}", status.detail, place),
                   "look for NaN or infinity in the quantized tensors");
    default:
      LUMEN_UNREACHABLE("guard code {}", status.code);
  }
}

std::shared_ptr<void> allocate_shared(const std::shared_ptr<Device>& device, int64_t bytes) {
  return {device->allocate(bytes), [device](void* memory) { device->release(memory); }};
}

std::shared_ptr<Program> make_program(std::shared_ptr<Device> device, std::shared_ptr<KernelCache> cache,
                                      LaunchList list, bool timed, std::shared_ptr<void> lent) {
  return std::make_shared<CompiledProgram>(std::move(device), std::move(cache), std::move(list), timed,
                                           std::move(lent));
}

}  // namespace lumen::run
