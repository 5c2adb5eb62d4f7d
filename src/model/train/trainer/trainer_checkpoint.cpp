// Writing and reading of checkpoints.
#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "model/recipe/record/record.h"
#include "model/train/trainer/guard.h"
#include "model/train/trainer/trainer.h"
#include "number/codec/codec.h"
#include "number/formula/scalar.h"

namespace lumen::model::train {
namespace {

constexpr const char* kTeacher = "teacher";              // hash of its weights
constexpr const char* kReferenceFile = "reference.txt";  // log probabilities of rows (RowLog)
constexpr const char* kGoesOn = "goes_on";               // in the state: the adapter began as another run's

constexpr const char* kOrigin = "origin";
constexpr const char* kNotSavedHint =
    "training has diverged and this state is not saved; go on from the last checkpoint with a lower rate";

// Older checkpoints, written when AdamW was the only optimizer, name its moments adam.m.* and adam.v.*.
std::string name_in(const file::TensorFile& file, const std::string& name) {
  if (file.find(name)) return name;
  for (const char* moment : {"m", "v"}) {
    const std::string prefix = recipe::optimizer_state(moment, "");
    const std::string before = fmt::format("adam.{}.", moment);
    if (name.starts_with(prefix) && file.find(before + name.substr(prefix.size())))
      return before + name.substr(prefix.size());
  }
  return name;
}

file::TensorSpec spec_of(const std::string& name, const graph::Type& type) {
  file::TensorSpec spec;
  spec.name = name;
  for (const graph::Dim& d : type.shape) spec.shape.push_back(d.number());
  spec.element = type.element;
  return spec;
}

graph::Type saved_type(const file::TensorSpec& spec) {
  return {{spec.shape.begin(), spec.shape.end()}, spec.element};
}

// Error unless `bytes` of a tensor are finite numbers and, for weights, small enough to be squared.
void check_numbers(const file::TensorSpec& spec, std::span<const uint8_t> bytes, const std::string& where,
                   const std::string& hint) {
  std::vector<float> numbers(spec.rows() * spec.columns());
  if (spec.element.format) {
    numbers = decode(*spec.element.format, bytes, spec.rows(), spec.columns());
  } else if (spec.element.scalar == Scalar::f32) {
    LUMEN_CHECK(bytes.size() == numbers.size() * sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
  } else {
    LUMEN_CHECK(scalar_bytes(spec.element.scalar) == sizeof(uint16_t) &&
                bytes.size() == numbers.size() * sizeof(uint16_t));
    for (size_t i = 0; i < numbers.size(); ++i) {
      uint16_t half = 0;
      std::memcpy(&half, bytes.data() + i * sizeof half, sizeof half);
      numbers[i] = spec.element.scalar == Scalar::bf16 ? bf16_to_f32(half) : f16_to_f32(half);
    }
  }
  require_finite(numbers, where, spec.name, hint,
                 recipe::is_optimizer_state(spec.name) ? std::numeric_limits<float>::max() : kLargestWeight);
}

// All of them are f32.
void scale_numbers(std::span<uint8_t> bytes, float divisor, float factor) {
  if (divisor == 1 && factor == 1) return;
  for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
    float x = 0;
    std::memcpy(&x, bytes.data() + at, sizeof x);
    x = x / divisor * factor;
    std::memcpy(bytes.data() + at, &x, sizeof x);
  }
}

// A checkpoint tensor's bytes, checked and converted to the run's type.
std::vector<uint8_t> taken(const file::TensorFile& file, const std::string& name, const std::string& folder,
                           const graph::Type& type) {
  const file::StoredTensor& stored = file.get(name_in(file, name));
  const file::TensorSpec expected = spec_of(name, type);
  // Files store 16-bit floats as scalar types; a run may hold them as a format.
  const FormatRef& format = expected.element.format;
  const bool same_element = stored.element == expected.element ||
                            (format && !stored.element.format && arch::is_plain(*format, stored.element.scalar));
  if (stored.shape != expected.shape || !same_element) {
    throw user_error(
        "{}: tensor '{}' has another shape or type than in this run; resume with the recipe it was made with", folder,
        name);
  }
  std::vector<uint8_t> blob = stored.blob();
  check_numbers(expected, blob, folder, "the checkpoint is of a run that had diverged; go on from an earlier one");
  return blob;
}

}  // namespace

bool Trainer::is_trained(const std::string& name) const {
  return std::any_of(method_.trained().begin(), method_.trained().end(),
                     [&](const arch::Parameter& p) { return p.name == name; });
}

bool Trainer::is_saved(const std::string& name) const {
  return is_trained(name) || (!has_adapter() && model_.weights.contains(name));
}

// The types of states in a single process.
std::map<std::string, graph::Type> Trainer::saved_states() const {
  std::map<std::string, graph::Type> out;
  if (ranked_)
    for (const auto& [name, type] : ranked_->states())
      out.emplace(name, tensor_parts_ ? tensor_parts_->whole_type(name, type) : type);
  for (const auto& [name, type] : stored())
    if (recipe::is_optimizer_state(name)) out.emplace(name, type);
  return out;
}

// A whole weight or state, for writing.
std::span<const uint8_t> Trainer::state_bytes(const file::TensorSpec& spec, std::vector<uint8_t>& buffer) const {
  if (ranked_ && (ranked_->states().contains(spec.name) || lies_in_parts(spec.name))) {
    buffer = ranked_->whole_state(spec.name, is_in_parts(spec.name));
    if (is_in_parts(spec.name)) buffer = tensor_parts_->gathered(spec.name, saved_type(spec), buffer);
  } else if (is_in_parts(spec.name)) {
    buffer.resize(graph::byte_size(type_of(spec.name)));
    fetch(spec.name, buffer);
  } else if (writes()) {
    buffer.resize(graph::byte_size(type_of(spec.name)));
    fetch(spec.name, buffer);
    scale_numbers(buffer, gradient_scale(spec.name), 1);
  }
  if (!writes()) return {};
  return {buffer.data(), static_cast<size_t>(spec.blob_bytes())};
}

// Each rank checks the parts it holds, and the writer checks the rest; all ranks learn of a number that is not finite
// before any rank writes.
void Trainer::check_parts() const {
  if (ranked_) ranked_->settle();
  settle_histories();
  const std::string where = fmt::format("after step {}", done_);
  agree(*communicator_, RankedStep::attempt([&] {
    std::vector<uint8_t> bytes;
    const auto check = [&](const std::string& name, const graph::Type& type) {
      const file::TensorSpec spec = spec_of(name, type);
      check_numbers(spec, std::span(bytes).first(spec.blob_bytes()), where, kNotSavedHint);
    };
    for (const auto& [name, t] : tensors_)
      if ((writes() || is_in_parts(name)) &&
          (is_saved(name) || (recipe::is_optimizer_state(name) && !(ranked_ && ranked_->states().contains(name))))) {
        bytes.resize(t->bytes());
        t->download(bytes.data(), t->bytes());
        check(name, t->type());
      }
    const auto check_paged = [&](TensorPager* whole) {
      if (!whole || !writes()) return;
      for (const PageGroup& g : whole->groups())
        for (const PagedTensor& v : g.tensors) {
          bytes.resize(graph::byte_size(v.type));
          whole->read(v.name, bytes);
          check(v.name, v.type);
        }
    };
    if (outside_ && !has_parts_of_parameters()) check_paged(outside_->parameters());
    if (updates_) check_paged(updates_->states());
    if (!ranked_) return;
    for (const auto* parts : {&ranked_->states(), &ranked_->parameters()})
      for (const auto& [name, unused] : *parts) {
        bytes = ranked_->part_of_state(name);
        if (!bytes.empty()) check(name, ranked_->part_type(name));
      }
  }));
}

int64_t Trainer::checkpoint_bytes() const {
  int64_t bytes = 1 << 20;  // tokenizer and state
  for (const auto& [name, type] : stored()) bytes += graph::byte_size(type);
  return bytes;
}

// Types of all checkpoint tensors, on or off the device.
std::map<std::string, graph::Type> Trainer::stored() const {
  std::map<std::string, graph::Type> out;
  for (auto& [name, type] : all_types())
    if (is_saved(name) || recipe::is_optimizer_state(name)) out.emplace(name, type);
  return out;
}

std::filesystem::path Trainer::save(const std::filesystem::path& out) const {
  if (diverged_)
    throw Error(Exit::numeric, fmt::format("the state after step {} is not saved: it has diverged", done_),
                "go on from the last checkpoint");
  if (communicator_) check_parts();
  file::CheckpointContent content;
  content.state.step = done_;
  content.state.seed = recipe_.seed;
  content.state.data_position = state_.batch_of(done_) * given_.accumulate;
  content.state.config = describe(given_);
  recipe::record_run(model_, batches_->files(), batches_->token_hash(), &content);
  if (has_adapter()) recipe::record_base(base_, &content);
  if (teacher_) content.state.more[kTeacher] = teacher_hash_;
  if (!reference_log_.empty()) content.files[kReferenceFile] = reference_log_.text();
  content.state.more["run"] = to_json(state_);
  if (goes_on_) content.state.more[kGoesOn] = true;
  if (!origin_.hash.empty()) content.state.more[kOrigin] = {{"place", origin_.place}, {"weights", origin_.hash}};
  for (const auto& [name, type] : stored())
    if (!recipe::is_optimizer_state(name)) content.weights.push_back(spec_of(name, type));
  for (const auto& [name, type] : saved_states()) content.optimizer.push_back(spec_of(name, type));
  std::vector<uint8_t> buffer;
  if (!writes()) {  // the writing ranks need its parts
    for (const auto* specs : {&content.weights, &content.optimizer})
      for (const file::TensorSpec& spec : *specs) (void)state_bytes(spec, buffer);
    meet();
    return out / fmt::format("checkpoint-{}", done_);
  }
  content.fetch = [&](const file::TensorSpec& spec) -> std::span<const uint8_t> {
    const std::span<const uint8_t> bytes = state_bytes(spec, buffer);
    check_numbers(spec, bytes, fmt::format("after step {}", done_), kNotSavedHint);
    return bytes;
  };
  const std::filesystem::path written = save_checkpoint(out, content);
  meet();
  return written;
}

void Trainer::restore(const std::filesystem::path& folder) {
  restore(file::load_checkpoint(folder, model_.family->library().formats()));
}

void Trainer::begin_with(const file::Checkpoint& checkpoint) {
  // Operand scales that the other run did not learn are fitted to its weights.
  const auto& scales = method_.scales();
  const auto is_new = [&](const std::string& name) {
    return !checkpoint.weights->find(name) &&
           std::any_of(scales.begin(), scales.end(), [&](const graph::LearnedScale& s) { return s.name == name; });
  };
  std::set<std::string> weights;
  for (const auto& [name, type] : stored())
    if (is_saved(name) && !is_new(name))
      store(name, taken(*checkpoint.weights, name, checkpoint.folder.string(), type));
  if (ranked_) ranked_->begin(false);
  for (const graph::LearnedScale& s : scales)
    if (is_new(s.name) && !s.weight.empty() && weights.insert(s.weight).second) put_scales(s.weight, {});
  clear_rests();
  goes_on_ = true;
  begin_bounds();
}

void Trainer::begin_with(const arch::Adapter& beginning) {
  for (const graph::LowRank& c : method_.changes()) {
    const arch::AdapterPart& part = beginning.parts.at(c.weight);
    for (const auto& [name, w] :
         {std::pair(graph::low_rank_a(c.weight), &part.a), {graph::low_rank_b(c.weight), &part.b}})
      (void)put_held(name, w->type.shape, w->f32());
  }
  begin_rests();
  begin_average();
  goes_on_ = true;
}

void Trainer::restore(const file::Checkpoint& checkpoint, Changes allowed) {
  const std::string folder = checkpoint.folder.string();
  for (const auto& [name, type] : stored()) {
    if (ranked_ && ranked_->states().contains(name)) continue;
    std::vector<uint8_t> bytes =
        taken(recipe::is_optimizer_state(name) ? *checkpoint.optimizer : *checkpoint.weights, name, folder, type);
    scale_numbers(bytes, 1, gradient_scale(name));
    store(name, bytes);
  }
  if (ranked_) {
    ranked_->begin(false);
    for (const auto& [name, type] : ranked_->states()) {
      const graph::Type whole = tensor_parts_ ? tensor_parts_->whole_type(name, type) : type;
      const std::vector<uint8_t> bytes = taken(*checkpoint.optimizer, name, folder, whole);
      ranked_->put_state(name, tensor_parts_ ? tensor_parts_->own_part(name, whole, bytes) : bytes);
    }
  }
  if (checkpoint.state.seed != recipe_.seed && !allowed.seed) {
    throw user_error("{} was made with seed {}, this run has seed {}", folder, checkpoint.state.seed, recipe_.seed);
  }
  if (checkpoint.state.step < 0 || checkpoint.state.step > recipe_.schedule.steps) {
    throw user_error("{} was made after {} steps, this run has {}", folder, checkpoint.state.step,
                     recipe_.schedule.steps);
  }
  const nlohmann::json& more = checkpoint.state.more;
  if (teacher_ && more.contains(kTeacher) && more[kTeacher] != teacher_hash_) {
    const std::string what = fmt::format("'{}' is not the teacher that {} was made with", teacher_->name, folder);
    if (!allowed.teacher)
      throw Error(Exit::verify, what, "--teacher names the same model, or --allow-changed-data takes another");
    warn(what);
  }
  state_ = run_state_of(checkpoint.state.more, folder);
  done_ = checkpoint.state.step;
  goes_on_ = checkpoint.state.more.contains(kGoesOn);
  if (const auto from = checkpoint.state.more.find(kOrigin); from != checkpoint.state.more.end())
    origin_ = {json_text(*from, "place", folder), json_text(*from, "weights", folder)};
  if (const auto log = checkpoint.files.find(kReferenceFile); log != checkpoint.files.end())
    reference_log_ = recipe::RowLog::read(log->second, folder + "/" + kReferenceFile);
  diverged_ = false;
  scales_are_known_ = false;  // unless the checkpoint has them
}

}  // namespace lumen::model::train
