#include "model/compress/fields/field_recovery.h"

#include <cmath>
#include <numbers>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/team.h"
#include "graph/ir/text.h"
#include "model/compress/quantize.h"
#include "model/file/checkpoint.h"

namespace lumen::model {
namespace {

constexpr double kFirst = 0.9, kSecond = 0.99;  // of Adam's moments
constexpr double kLast = 0.05;                  // of the rate, at the end
constexpr int kSaves = 10;                      // in a run

std::span<const uint8_t> bytes_of(const std::vector<float>& x) {
  return {reinterpret_cast<const uint8_t*>(x.data()), x.size() * sizeof(float)};
}

}  // namespace

// Logarithms of the factors of a weight's groups, or a vector's numbers.
struct FieldRecovery::Moving {
  std::unique_ptr<ScaledBlob> blob;  // null: a vector
  std::vector<float> x, first, second, best, slope;
  double size = 1;  // of what a step of rate 1 moves

  // By name, as a checkpoint keeps them.
  std::map<std::string, std::vector<float>*> states() {
    return {{"", &x}, {".first", &first}, {".second", &second}, {".best", &best}};
  }
  std::vector<float> factors(const std::vector<float>& logarithms) const {
    std::vector<float> out(logarithms.size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::exp(logarithms[i]);
    return out;
  }
};

FieldRecovery::FieldRecovery(run::Engine& engine, const Model& rounded, const Model* teacher,
                             std::span<const TokenId> text, FieldRecoveryOptions options)
    : engine_(engine),
      rounded_(rounded),
      options_(std::move(options)),
      loss_(engine, rounded, text, options_.run, {}, teacher),
      key_(key(text, teacher)) {
  for (const Parameter& p : rounded.parameters)
    if (!p.frozen) add(p);
  if (moving_.empty())
    throw user_error("nothing of the model could be trained with its codes as they are{}",
                     left_.empty() ? "" : ": " + left_[0]);
  if (!options_.folder.empty()) lock_ = std::make_unique<FolderLock>(options_.folder);
}

FieldRecovery::~FieldRecovery() = default;

void FieldRecovery::add(const Parameter& p) {
  const Weight& w = rounded_.weights.at(p.name);
  auto m = std::make_unique<Moving>();
  if (w.is_f32()) {
    if (!options_.vectors || !p.is_vector()) return;
    m->x.assign(w.f32().begin(), w.f32().end());
    double squares = 0;
    for (const float v : m->x) squares += double{v} * v;
    m->size = std::sqrt(squares / std::max<size_t>(m->x.size(), 1));
    if (!(m->size > 0)) m->size = 0.01;
  } else {
    if (!options_.scales) return;
    const FormatRef& f = w.type.element.format;
    std::string why;
    const std::optional<ScaleFields> scales = find_scale_fields(*f, &why);
    if (!scales) {
      const std::string line = fmt::format("scales of '{}' stay: {}", f->name, why);
      if (std::ranges::find(left_, line) == left_.end()) left_.push_back(line);
      return;
    }
    m->blob = std::make_unique<ScaledBlob>(f, *scales, w.rows(), w.columns(),
                                           std::span<const uint8_t>(w.bytes.data(), w.bytes.size()));
    m->x.assign(m->blob->groups(), 0);
  }
  m->first.assign(m->x.size(), 0);
  m->second = m->slope = m->first;
  m->best = m->x;
  moving_[p.name] = std::move(m);
}

int64_t FieldRecovery::trained() const {
  int64_t out = 0;
  for (const auto& [name, m] : moving_) out += std::ssize(m->x);
  return out;
}

std::string FieldRecovery::key(std::span<const TokenId> text, const Model* teacher) const {
  const FieldRecoveryOptions& o = options_;
  std::string all = fmt::format("{}\n{} {} {} {} {} {} {}\n", o.source, o.scales, o.vectors, o.steps, o.rate,
                                o.step_windows, o.seed, teacher != nullptr);
  all += fmt::format("{} {} {} {}\n", o.run.length, o.run.batch, o.run.bos, int(o.run.products.scalar));
  for (const Parameter& p : rounded_.parameters)
    all += fmt::format("{} {}\n", p.name, graph::print(rounded_.weights.at(p.name).type));
  all += hash_bytes(text.data(), text.size_bytes()).hex();
  return hash_text(all).hex();
}

std::vector<float> FieldRecovery::numbers(const std::string& name) const {
  const Weight& w = rounded_.weights.at(name);
  const auto found = moving_.find(name);
  if (found == moving_.end()) return values_of(engine_, w);
  const Moving& m = *found->second;
  if (!m.blob) return m.x;
  return engine_.decode(w.type.element.format, m.blob->times(m.factors(m.x)).data(), w.rows(), w.columns());
}

// Adam without decay.
void FieldRecovery::move(double rate) {
  ++moves_;
  const double first = 1 - std::pow(kFirst, moves_), second = 1 - std::pow(kSecond, moves_);
  for (const auto& entry : moving_) {
    Moving* const m = entry.second.get();
    const float step = rate * m->size;
    parallel_for(0, std::ssize(m->x), [&](int64_t i) {
      const float g = m->slope[i];
      m->first[i] = kFirst * m->first[i] + (1 - kFirst) * g;
      m->second[i] = kSecond * m->second[i] + (1 - kSecond) * g * g;
      const double root = std::sqrt(m->second[i] / second);
      if (root > 0) m->x[i] -= step * (m->first[i] / first) / root;
    });
    m->slope.assign(m->slope.size(), 0);
  }
}

void FieldRecovery::look(int step) {
  const double value = loss_.value([&](const std::string& name) { return numbers(name); });
  if (step == 0) before_ = after_ = value;
  if (!(value < after_)) return;
  after_ = value;
  best_step_ = step;
  for (const auto& [name, m] : moving_) m->best = m->x;
}

bool FieldRecovery::run(const std::function<void(const FieldRecoveryProgress&)>& progress,
                        const std::function<bool()>& stop) {
  int done = load();
  if (done == 0) look(0);
  WindowDraw draw(loss_.windows(), options_.step_windows, options_.seed);
  for (int step = 0; step < done; ++step) (void)draw.next();
  const int steps = options_.steps, between = std::max(steps / kSaves, 1);
  for (; done < steps;) {
    const double cost = loss_.gradients(
        draw.next(), [&](const std::string& name) { return numbers(name); },
        [&](const std::string& name, std::vector<float> gradient) {
          const auto found = moving_.find(name);
          if (found == moving_.end()) return;
          Moving& m = *found->second;
          if (m.blob) gradient = m.blob->sums(gradient, numbers(name));
          for (size_t i = 0; i < gradient.size(); ++i) m.slope[i] += gradient[i];
        });
    if (!std::isfinite(cost))
      throw Error(Exit::numeric, fmt::format("step {} costs {}", done + 1, cost), "a smaller --rate may help");
    move(options_.rate * (kLast + (1 - kLast) * 0.5 * (1 + std::cos(std::numbers::pi * done / steps))));
    ++done;
    if (progress) progress({done, steps, cost});
    if (is_looked_at(done, steps)) look(done);
    const bool stops = done < steps && stop && stop();
    if (stops || done == steps || done % between == 0) save(done);
    if (stops) return false;
  }
  return true;
}

void FieldRecovery::save(int step) {
  if (options_.folder.empty()) return;
  CheckpointContent content;
  content.state.step = step;
  content.state.seed = options_.seed;
  content.state.config = key_;
  content.state.more = {{"before", before_}, {"after", after_}, {"best", best_step_}};
  std::map<std::string, const std::vector<float>*> tensors;
  for (const auto& [name, m] : moving_)
    for (const auto& [ending, numbers] : m->states()) {
      TensorSpec spec;
      spec.name = name + ending;
      spec.shape = {std::ssize(*numbers)};
      tensors[spec.name] = numbers;
      (ending.empty() ? content.weights : content.optimizer).push_back(std::move(spec));
    }
  content.fetch = [&](const TensorSpec& spec) { return bytes_of(*tensors.at(spec.name)); };
  (void)save_checkpoint(options_.folder, content, 1);
}

int FieldRecovery::load() {
  if (options_.folder.empty()) return 0;
  if (options_.anew)
    for (const std::filesystem::path& old : list_checkpoints(options_.folder)) discard_checkpoint(old);
  const auto latest = latest_checkpoint(options_.folder);
  if (!latest) return 0;
  const Checkpoint c = load_checkpoint(*latest, rounded_.family->library().formats());
  if (c.state.config != key_)
    throw Error(Exit::user,
                fmt::format("'{}' holds what another run has done, with other models, text or options",
                            options_.folder.string()),
                "remove the folder, name another one with --work-folder, or begin anew with --restart");
  for (const auto& [name, m] : moving_)
    for (const auto& [ending, numbers] : m->states()) {
      const StoredTensor& t = (ending.empty() ? c.weights : c.optimizer)->get(name + ending);
      LUMEN_CHECK(t.data.size() == bytes_of(*numbers).size(), "'{}' of another size", t.name);
      std::copy(t.data.begin(), t.data.end(), reinterpret_cast<uint8_t*>(numbers->data()));
    }
  before_ = c.state.more.at("before");
  after_ = c.state.more.at("after");
  best_step_ = c.state.more.at("best");
  moves_ = c.state.step;
  return c.state.step;
}

Model FieldRecovery::result() const {
  Model out = rounded_;
  for (const auto& [name, m] : moving_) {
    Weight& w = out.weights.at(name);
    if (m->blob)
      w.bytes = m->blob->times(m->factors(m->best));
    else
      w = f32_weight(w.type.shape, m->best);
  }
  return out;
}

void FieldRecovery::remove_folder() {
  if (options_.folder.empty()) return;
  for (const std::filesystem::path& old : list_checkpoints(options_.folder)) discard_checkpoint(old);
  lock_.reset();
  std::error_code ignored;
  std::filesystem::remove(options_.folder, ignored);  // if nothing else lies there
}

}  // namespace lumen::model
