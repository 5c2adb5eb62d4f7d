#include "model/train/ranks/ranks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "model/train/ranks/rank_graphs.h"
#include "model/train/ranks/tensor_parts.h"
#include "number/formula/scalar.h"
#include "run/engine/compile/compile.h"

namespace lumen::model::train {
namespace {

constexpr int64_t kBucketBytes = int64_t{64} << 20;  // of gradients in one exchange

FormatRef exchange_format(const std::string& name, const FormatLibrary& formats, const char* flag) {
  const FormatRef format = formats.get(name);
  if (arch::is_plain(*format, Scalar::f32)) return nullptr;
  check_exchange_format(format, flag);
  return format;
}

std::vector<const Cut*> all_of(const std::vector<Cut>& cuts) {
  std::vector<const Cut*> out;
  for (const Cut& cut : cuts) out.push_back(&cut);
  return out;
}

int64_t scratch_of(const std::vector<const Cut*>& bucket, int rank, int ranks) {
  int64_t need = 0;
  for (const Cut* cut : bucket)
    if (cut->rows_of(rank) > 0)
      need += ranks * run::aligned(cut->rows_of(rank) * cut->columns * int64_t{sizeof(float)});
  return need;
}

// Offloading with ranks: layers' tensors, and states that ranks hold in parts.
void check_offload(const recipe::Recipe& recipe, bool in_tensors) {
  const recipe::OffloadSettings outside = recipe::offload_settings(recipe.offload);
  if (!outside.any()) return;
  const Sharding sharding = sharding_of(recipe);
  const std::string asked = fmt::format("--offload {}", recipe.offload);
  if (in_tensors)
    throw Error(Exit::usage, fmt::format("{} and --tensor-parallel contradict each other", asked),
                outside.layers || outside.activations
                    ? "exchanges within layers go with whole steps: --recompute layers takes less of each rank"
                    : "states are parts of parts then: --shard states alone divides them by all ranks");
  if (outside.moments && !outside.layers && sharding == Sharding::none)
    throw Error(Exit::usage, fmt::format("{}: every rank would move all of the states", asked),
                "--shard states or gradients lets each have a part of them, which it moves alone");
  const bool by_layers = outside.layers || outside.activations;
  if (by_layers && recipe.reduce_type != "f32" && (sharding == Sharding::none || sharding == Sharding::states))
    throw Error(Exit::usage,
                fmt::format("{} and --reduce-type {} contradict each other: gradients grow where they lie", asked,
                            recipe.reduce_type),
                "--shard gradients or parameters goes with both");
  if (outside.layers && recipe.gather_type != "f32" && sharding != Sharding::parameters)
    throw Error(
        Exit::usage,
        fmt::format(
            "{} and --gather-type {} contradict each other: the exact values of a rank would stay on its device", asked,
            recipe.gather_type),
        "--shard parameters goes with both");
}

}  // namespace

std::vector<std::vector<const Cut*>> buckets_of(const std::vector<const Cut*>& cuts) {
  std::vector<std::vector<const Cut*>> out;
  int64_t bytes = 0;
  for (const Cut* cut : cuts) {
    const int64_t own = cut->whole.count() * int64_t{sizeof(float)};
    if (out.empty() || bytes + own > kBucketBytes) {
      out.emplace_back();
      bytes = 0;
    }
    out.back().push_back(cut);
    bytes += own;
  }
  return out;
}

// One receive buffer serves all buckets in turn.
int64_t exchange_scratch(const std::vector<Cut>& cuts, int rank, int ranks) {
  int64_t most = 0;
  for (const std::vector<const Cut*>& bucket : buckets_of(all_of(cuts)))
    most = std::max(most, scratch_of(bucket, rank, ranks));
  return most;
}

Exchanges exchanges_of(const recipe::Recipe& recipe, const FormatLibrary& formats) {
  return {exchange_format(recipe.reduce_type, formats, "--reduce-type"),
          exchange_format(recipe.gather_type, formats, "--gather-type")};
}

Sharding sharding_of(const recipe::Recipe& recipe) {
  return recipe.shard == "states"       ? Sharding::states
         : recipe.shard == "gradients"  ? Sharding::gradients
         : recipe.shard == "parameters" ? Sharding::parameters
                                        : Sharding::none;
}

recipe::Recipe recipe_of_rank(const recipe::Recipe& recipe, int ranks) {
  recipe::Recipe own = recipe;
  own.tensor_parallel = ranks == 1 ? 1 : recipe.tensor_parallel;
  own.sequence_parallel = ranks > 1 && recipe.sequence_parallel;
  if (ranks == 1) return own;
  const int shares = data_ranks(recipe, ranks);
  const bool pairs = recipe.data_form == "pairs";
  if (recipe.batch % shares != 0 || (pairs && recipe.batch / shares % 2 != 0))
    throw Error(Exit::usage,
                fmt::format("a batch of {} is not divided by {} {}{}", recipe.batch, shares,
                            shares == ranks ? "ranks" : "groups of ranks", pairs ? " of pairs" : ""),
                "--batch is the batch of all ranks together: name a multiple of their number");
  const bool gathers = sharding_of(recipe) != Sharding::none;
  if (recipe.gather_type != "f32" && !gathers)
    throw Error(Exit::usage, fmt::format("--gather-type {}: no parameters are gathered", recipe.gather_type),
                "--shard states lets each rank compute its part of the parameters, which are gathered then");
  if (recipe.gather_type != "f32" && recipe.param_type != "f32")
    throw Error(Exit::usage,
                fmt::format("--gather-type {} and --param-type {} contradict each other", recipe.gather_type,
                            recipe.param_type),
                "parameters whose changes are gathered in a format are f32");
  const bool is_scalar = recipe.param_type == "f32" || recipe.param_type == "bf16" || recipe.param_type == "f16";
  if ((gathers || own.tensor_parallel > 1) && !is_scalar)
    throw Error(Exit::usage,
                fmt::format("{} and --param-type {} contradict each other: parts of parameters go from rank to rank as "
                            "they are held, and parts of packed rows have no place of their own",
                            gathers ? "--shard " + recipe.shard : "--tensor-parallel", recipe.param_type),
                "--param-type f32, bf16 or f16 goes with it, and a compensation of their rounding");
  if (recipe.gather_type != "f32" && recipe.products.weight_scale == "predicted")
    throw Error(Exit::usage,
                fmt::format("--gather-type {} and weights' scales that are predicted contradict each other",
                            recipe.gather_type),
                "bounds are of weights as they are updated, not of their copies on other ranks");
  check_offload(recipe, own.tensor_parallel > 1);
  own.batch /= shares;
  own.accumulate *= shares;
  return own;
}

RankedStep::RankedStep(run::Engine& engine, std::shared_ptr<run::Communicator> ranks, const Method& method,
                       const recipe::Recipe& recipe, Tensors tensors, TensorParts* tensor,
                       std::shared_ptr<OffloadedParameters> outside)
    : engine_(engine),
      tensor_(tensor),
      ranks_(std::move(ranks)),
      tensors_(std::move(tensors)),
      sharding_(sharding_of(recipe)),
      held_(method.held()),
      averages_(recipe.optimizer.ema_decay > 0),
      cuts_(cut_parameters(method.trained_here(), method.optimizer(), ranks_->size())),
      outside_(std::move(outside)) {
  const auto [reduced_in, gathered_in] = exchanges_of(recipe, method.formats());
  reduced_in_ = reduced_in;
  gathered_in_ = gathered_in;
  const bool on_host = engine.device().reads_host_memory();
  overlaps_ = recipe.overlap && (on_host ? ranks_->serves_any_thread() : ranks_->stream() != nullptr && !outside_);
}

RankedStep::RankedStep(run::Engine& engine, std::shared_ptr<run::Communicator> ranks, const Method& method,
                       const recipe::Recipe& recipe, Tensors tensors, run::Program* gradients, TensorParts* tensor)
    : RankedStep(engine, std::move(ranks), method, recipe, std::move(tensors), tensor, nullptr) {
  if (overlaps_ && !engine.device().reads_host_memory() && gradients) stream_ = ranks_->stream();
  make_buckets(gradients);
  if (holds_parts()) {
    compile_apply(method, recipe);
    if (gathered_in_) compile_changes();
  }
  if (stream_) begin_overlap(*gradients);
}

void RankedStep::forget_parameters() {
  if (store_) store_->forget_parameters();
}

int64_t RankedStep::exchange_bytes() const {
  return store_ ? store_->exchange_bytes() : scratch_bytes_;
}

std::shared_ptr<run::Program> RankedStep::compile(const graph::Graph& g) const {
  if (std::none_of(g.nodes.begin(), g.nodes.end(), [](const graph::Node& n) { return n.op != graph::Op::input_; }))
    return nullptr;  // a rank without a part
  return engine_.compile(g, {});
}

// A trainer's tensor of a parameter: the parameter itself, or with a prefix its gradient.
run::DeviceTensorRef RankedStep::whole(const Cut& cut, const char* prefix) const {
  const bool itself = *prefix == 0;
  return tensors_(prefix + cut.whole.name,
                  itself ? held_.type_of(cut.whole) : graph::Type{cut.whole.shape, {Scalar::f32, nullptr}});
}

run::DeviceTensorRef RankedStep::part(const run::DeviceTensorRef& all, const Cut& cut, int rank) const {
  const int64_t row_bytes = all->bytes() / cut.rows;
  auto* const at = reinterpret_cast<std::byte*>(all->data()) + cut.first[rank] * row_bytes;
  return std::make_shared<run::DeviceTensor>(engine_.device(), cut.part_of(all->type(), rank), all, at);
}

run::DeviceTensorRef RankedStep::gradient_part(const Cut& cut) const {
  if (!reduces_each_batch()) return part(whole(cut, recipe::kGradient), cut, ranks_->rank());
  return tensors_(recipe::kGradient + cut.whole.name,
                  cut.part_of({cut.whole.shape, {Scalar::f32, nullptr}}, ranks_->rank()));
}

// With overlap, in the order in which the step produces gradients.
void RankedStep::make_buckets(run::Program* gradients) {
  const std::vector<const Cut*> cuts =
      stream_ ? in_order([&](const Cut& cut) { return gradients->last_use(recipe::kGradient + cut.whole.name); })
              : all_of(cuts_);
  for (std::vector<const Cut*>& bucket : buckets_of(cuts)) {
    scratch_bytes_ = std::max(scratch_bytes_, scratch_of(bucket, ranks_->rank(), ranks_->size()));
    buckets_.push_back({std::move(bucket), nullptr, nullptr});
  }
  if (scratch_bytes_ > 0) scratch_ = engine_.allocate(scratch_bytes_);
  for (Bucket& bucket : buckets_) compile_bucket(bucket);
  if (reduces_each_batch()) return;
  std::vector<const Cut*> all;
  for (const Cut& cut : cuts_) all.push_back(&cut);
  clear_ = compile(clear_graph(all));
  for (const Cut& cut : cuts_) clear_->bind(recipe::kGradient + cut.whole.name, whole(cut, recipe::kGradient));
}

void RankedStep::compile_bucket(Bucket& bucket) {
  const int own = ranks_->rank(), size = ranks_->size();
  const bool adds = reduces_each_batch();
  if (reduced_in_) bucket.encode = compile(encode_graph(bucket.cuts, reduced_in_));
  bucket.sum = compile(sum_graph(bucket.cuts, own, size, adds, reduced_in_));
  int64_t at = 0;
  for (const Cut* cut : bucket.cuts) {
    const FormatRef coded = exchanged_in(*cut, reduced_in_);
    if (coded) {
      auto& lost = lost_[cut->whole.name];
      lost =
          std::make_shared<run::DeviceTensor>(engine_.device(), graph::Type{cut->whole.shape, {Scalar::f32, nullptr}});
      bucket.encode->bind(kLost + cut->whole.name, lost);
    }
    if (cut->rows_of(own) == 0) continue;
    bucket.sum->bind(recipe::kGradient + cut->whole.name, gradient_part(*cut));
    for (int r = 0; r < size; ++r) {
      if (r == own && !adds && !coded) continue;
      const graph::Type type = cut->part_of({cut->whole.shape, {Scalar::f32, coded}}, own);
      auto in = std::make_shared<run::DeviceTensor>(engine_.device(), type, scratch_, scratch_.get() + at);
      bucket.sum->bind(part_input(r, cut->whole.name), in);
      at += run::aligned(in->bytes());
    }
  }
}

void RankedStep::compile_apply(const Method& method, const recipe::Recipe& recipe) {
  const int own = ranks_->rank();
  std::vector<const Cut*> all;
  std::vector<arch::Parameter> parts;
  for (const Cut& cut : cuts_) {
    all.push_back(&cut);
    if (cut.rows_of(own) > 0) parts.push_back(cut.part(own));
    const auto add = [&](const std::string& name, const graph::Type& type) {
      state_types_[name] = type;
      state_cuts_[name] = &cut;
    };
    for (const recipe::Optimizer::State& s : method.optimizer().states(cut.whole))
      add(recipe::optimizer_state(s.name, cut.whole.name), s.type);
    if (averages_) add(recipe::average_of(cut.whole.name), held_.type_of(cut.whole));
  }
  if (parts.empty()) return;
  if (!(store_ && store_->squares())) {
    squares_ = compile(squares_graph(all, own));
    for (const Cut& cut : cuts_)
      if (cut.rows_of(own) > 0) squares_->bind(recipe::kGradient + cut.whole.name, gradient_part(cut));
  }
  if (compile_groups(method, recipe, parts)) return;
  const Method::Work work = method.apply(parts);
  apply_ = engine_.compile(work.graph, work.options);
  for (const Cut& cut : cuts_) {
    if (cut.rows_of(own) == 0) continue;
    apply_->bind(recipe::kGradient + cut.whole.name, gradient_part(cut));
    apply_->bind(cut.whole.name, bound_part(cut));
  }
  for (const std::string& name : apply_->input_names()) {
    const bool is_part =
        name.starts_with(recipe::kGradient) ||
        std::any_of(parts.begin(), parts.end(), [&](const arch::Parameter& p) { return p.name == name; });
    if (!is_part) apply_->bind(name, tensors_(name, apply_->input_type(name)));
  }
}

// This rank's part of a parameter, as updates change it.
run::DeviceTensorRef RankedStep::bound_part(const Cut& cut) {
  if (holds_parameters()) return state_part(cut.whole.name);
  run::DeviceTensorRef parameter = part(whole(cut, ""), cut, ranks_->rank());
  if (!gathered_in_) return parameter;
  return masters_[cut.whole.name] = std::make_shared<run::DeviceTensor>(engine_.device(), parameter->type());
}

// For offloaded states: updates group by group, with the step's scalars computed for all at once.
bool RankedStep::compile_groups(const Method& method, const recipe::Recipe& recipe,
                                const std::vector<arch::Parameter>& parts) {
  if (!recipe::offload_settings(recipe.offload).moments) return false;
  const std::vector<UpdateGroup> groups = update_groups(parts, method.optimizer());
  std::unique_ptr<TensorPager> states = open_states(engine_, recipe, paged_states(parts, groups, method.optimizer()));
  if (!states && !outside_) return false;
  const Method::Work clip = method.apply(std::vector<arch::Parameter>());
  apply_ = engine_.compile(clip.graph, clip.options);
  for (const std::string& name : apply_->input_names()) apply_->bind(name, tensors_(name, apply_->input_type(name)));
  // By layers the first batch of a step overwrites the gradients.
  const bool clears = reduces_each_batch() || !store_;
  updates_ = std::make_unique<GroupedUpdates>(engine_, method, parts, clears, std::move(states), nullptr,
                                              updated_tensors(parts));
  return true;
}

TensorPager* RankedStep::outside(const std::string& name) const {
  if (outside_ && holds_parameters() && outside_->parameters() && outside_->parameters()->find(name))
    return outside_->parameters();
  TensorPager* const states = updates_ ? updates_->states() : nullptr;
  return states && states->find(name) ? states : nullptr;
}

int64_t RankedStep::slot_bytes() const {
  return updates_ && updates_->states() ? updates_->states()->slot_bytes() : 0;
}

void RankedStep::compile_changes() {
  std::vector<const Cut*> all;
  for (const Cut& cut : cuts_) all.push_back(&cut);
  const int own = ranks_->rank();
  change_ = compile(change_graph(all, own, gathered_in_));
  follow_ = compile(follow_graph(all, ranks_->size(), gathered_in_));
  for (const Cut& cut : cuts_) {
    const FormatRef coded = exchanged_in(cut, gathered_in_);
    if (!coded) continue;
    const std::string& name = cut.whole.name;
    if (cut.rows_of(own) > 0) {
      change_->bind(kMaster + name, masters_.at(name));
      change_->bind(kHeld + name, part(whole(cut, ""), cut, own));
    }
    auto& changes = changes_[name];
    changes.resize(ranks_->size());
    for (int r = 0; r < ranks_->size(); ++r) {
      if (cut.rows_of(r) == 0) continue;
      changes[r] = std::make_shared<run::DeviceTensor>(engine_.device(),
                                                       cut.part_of({cut.whole.shape, {Scalar::f32, coded}}, r));
      follow_->bind(part_input(r, name), changes[r]);
      follow_->bind(kHeld + part_input(r, name), part(whole(cut, ""), cut, r));
    }
  }
}

void agree(run::Communicator& ranks, const std::optional<Error>& failure) {
  const std::string mine =
      failure ? fmt::format("{:03}{}\n{}", exit_code(failure->code()), failure->what(), failure->hint())
              : std::string();
  const std::vector<std::string> all = ranks.all_gather(mine);
  for (int r = 0; r < ranks.size(); ++r) {
    if (all[r].empty()) continue;
    const size_t line = all[r].rfind('\n');
    const Exit code = Exit(std::stoi(all[r].substr(0, 3)));
    throw Error(code, fmt::format("rank {}: {}", r, all[r].substr(3, line - 3)), all[r].substr(line + 1));
  }
}

std::optional<Error> RankedStep::attempt(const std::function<void()>& work) {
  try {
    work();
  } catch (const run::RankLost&) {
    throw;
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

bool RankedStep::updates(const std::string& parameter) const {
  for (const Cut& cut : cuts_)
    if (cut.whole.name == parameter) return !holds_parts() || cut.rows_of(ranks_->rank()) > 0;
  return false;
}

std::vector<float> largest_of(run::Communicator& ranks, const std::vector<float>& numbers) {
  const std::string mine(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
  std::vector<float> out = numbers;
  for (const std::string& theirs : ranks.all_gather(mine)) {
    LUMEN_CHECK(theirs.size() == mine.size(), "ranks compare different numbers");
    for (size_t i = 0; i < out.size(); ++i) {
      float one = 0;
      std::memcpy(&one, theirs.data() + i * sizeof one, sizeof one);
      if (!(one <= out[i])) out[i] = one;  // NaN is kept
    }
  }
  return out;
}

std::vector<double> RankedStep::sum(std::vector<double> numbers) {
  ranks_->all_reduce(numbers);
  return numbers;
}

bool RankedStep::any(bool mine) {
  return sum({mine ? 1.0 : 0.0})[0] > 0;
}

run::DeviceTensorRef RankedStep::gradient(run::Program& program, const Cut& cut) const {
  return reduces_each_batch() ? program.result(recipe::kGradient + cut.whole.name) : whole(cut, recipe::kGradient);
}

void RankedStep::reduce(run::Program& program) {
  if (reduced_in_) {
    // A number that is not finite stops this rank here, and all others with it.
    agree(attempt([&] {
      for (const Bucket& bucket : buckets_) {
        if (!bucket.encode) continue;
        if (stream_) {
          bucket.encode->check();
          continue;
        }
        for (const Cut* cut : bucket.cuts)
          if (exchanged_in(*cut, reduced_in_))
            bucket.encode->bind(recipe::kGradient + cut->whole.name, gradient(program, *cut));
        bucket.encode->run();
      }
    }));
  }
  if (stream_) return;  // exchanged already
  for (const Bucket& bucket : buckets_) {
    const Pieces pieces = gradient_pieces(bucket, program);
    ranks_->exchange(pieces.to, pieces.from);
    if (bucket.sum) bucket.sum->run();
  }
}

// Sends each rank's rows of a bucket's gradients to that rank.
RankedStep::Pieces RankedStep::gradient_pieces(const Bucket& bucket, run::Program& program) const {
  const int own = ranks_->rank(), size = ranks_->size();
  Pieces out{run::SentPieces(size), run::TakenPieces(size)};
  int64_t at = 0;
  for (const Cut* cut : bucket.cuts) {
    const FormatRef coded = exchanged_in(*cut, reduced_in_);
    const run::DeviceTensorRef source =
        coded ? bucket.encode->result(kCoded + cut->whole.name) : gradient(program, *cut);
    const bool keeps_own = !reduces_each_batch() && !coded;
    const int64_t row_bytes =
        coded ? cut->columns / coded->block * coded->block_bytes : cut->columns * int64_t{sizeof(float)};
    for (int r = 0; r < size; ++r) {
      if (cut->rows_of(r) == 0 || (r == own && keeps_own)) continue;
      const auto* const data = reinterpret_cast<const std::byte*>(source->data()) + cut->first[r] * row_bytes;
      out.to[r].push_back({data, cut->rows_of(r) * row_bytes});
    }
    if (cut->rows_of(own) == 0) continue;
    const graph::Type type = cut->part_of({cut->whole.shape, {Scalar::f32, coded}}, own);
    for (int r = 0; r < size; ++r) {
      if (r == own && keeps_own) continue;
      out.from[r].push_back({scratch_.get() + at, cut->rows_of(own) * row_bytes});
      at += run::aligned(graph::byte_size(type));
    }
  }
  return out;
}

// Sends every rank's rows of tensors that all ranks hold whole.
RankedStep::Pieces RankedStep::shared_pieces(const std::vector<const Cut*>& cuts, const char* prefix) const {
  const int own = ranks_->rank(), size = ranks_->size();
  Pieces out{run::SentPieces(size), run::TakenPieces(size)};
  for (const Cut* cut : cuts) {
    const run::DeviceTensorRef all = whole(*cut, prefix);
    const int64_t row_bytes = all->bytes() / cut->rows;
    auto* const data = reinterpret_cast<std::byte*>(all->data());
    for (int r = 0; r < size; ++r) {
      if (r == own) continue;
      if (cut->rows_of(own) > 0)
        out.to[r].push_back({data + cut->first[own] * row_bytes, cut->rows_of(own) * row_bytes});
      if (cut->rows_of(r) > 0) out.from[r].push_back({data + cut->first[r] * row_bytes, cut->rows_of(r) * row_bytes});
    }
  }
  return out;
}

void RankedStep::share(const char* prefix) {
  const Pieces pieces = shared_pieces(all_of(cuts_), prefix);
  ranks_->exchange(pieces.to, pieces.from);
}

void RankedStep::share_sums() {
  LUMEN_CHECK(!holds_parts());
  if (!stream_) share(recipe::kGradient);  // else each bucket was shared after its sum
}

double RankedStep::norm() {
  if (store_ && store_->squares()) return norm_of_layers();
  double squares = 0, of_parts = 0;  // of tensors split over tensor-parallel ranks
  if (squares_) squares_->run();
  for (const Cut& cut : cuts_) {
    if (!tensor_ || cut.rows_of(ranks_->rank()) == 0) continue;
    float number = 0;
    squares_->result(recipe::kSquares + cut.whole.name)->download(&number, sizeof number);
    (tensor_->split_of(cut.whole.name) ? of_parts : squares) += number;
  }
  if (squares_ && !tensor_) {
    float number = 0;
    squares_->result("squares")->download(&number, sizeof number);
    squares = number;
  }
  std::vector<double> sums = sum({squares, of_parts});
  if (tensor_) tensor_->group().all_reduce(std::span(sums).subspan(1));
  return std::sqrt(sums[0] + sums[1]);
}

std::vector<std::string> RankedStep::broken() {
  std::string mine;
  for (const Cut& cut : cuts_) {
    if (cut.rows_of(ranks_->rank()) == 0) continue;
    float number = 0;
    if (store_ && store_->squares())
      number = store_->squares()->at(cut.whole.name);
    else
      squares_->result(recipe::kSquares + cut.whole.name)->download(&number, sizeof number);
    mine += std::isfinite(number) ? '0' : '1';
  }
  const std::vector<std::string> all = ranks_->all_gather(mine);
  std::vector<std::string> names;
  std::vector<size_t> at(all.size(), 0);
  for (const Cut& cut : cuts_) {
    bool is_broken = false;
    for (int r = 0; r < ranks_->size(); ++r)
      if (cut.rows_of(r) > 0) is_broken = all[r].at(at[r]++) == '1' || is_broken;
    if (is_broken) names.push_back(cut.whole.name);
  }
  return names;
}

void RankedStep::apply(double norm, uint32_t seed) {
  LUMEN_CHECK(holds_parts());
  const float number = norm;
  if (outside_) return apply_by_layers(number, seed);
  agree(attempt([&] { apply_groups(number, seed, {}); }));
  if (clear_) clear_->run();
}

void RankedStep::clear() {
  if (clear_) clear_->run();
  if (!reduces_each_batch()) return;
  if (outside_) outside_->clear_gradients();
  for (const Cut& cut : cuts_)
    if (cut.rows_of(ranks_->rank()) > 0 && !(outside_ && outside_->has(recipe::kGradient + cut.whole.name)))
      gradient_part(cut)->clear();
}

void RankedStep::share_parameters() {
  if (holds_parameters()) return forget_parameters();
  if (outside_) return share_layer(-1);  // updates have shared the layers
  if (!gathered_in_) return stream_ ? gather_parameters() : share("");
  if (change_) change_->run();
  const int own = ranks_->rank(), size = ranks_->size();
  run::SentPieces to(size);
  run::TakenPieces from(size);
  for (const Cut& cut : cuts_) {
    const bool coded = exchanged_in(cut, gathered_in_) != nullptr;
    const run::DeviceTensorRef all = whole(cut, "");
    for (int r = 0; r < size; ++r) {
      if (cut.rows_of(own) > 0) {
        const auto source = coded ? change_->result(kCoded + cut.whole.name) : masters_.at(cut.whole.name);
        to[r].push_back({source->data(), source->bytes()});
      }
      if (cut.rows_of(r) > 0) {
        const auto target = coded ? changes_.at(cut.whole.name)[r] : part(all, cut, r);
        from[r].push_back({target->data(), target->bytes()});
      }
    }
  }
  ranks_->exchange(to, from);
  if (follow_) follow_->run();
}

void RankedStep::begin(bool averages) {
  std::vector<uint8_t> bytes;
  for (const Cut& cut : cuts_) {
    if (cut.rows_of(ranks_->rank()) == 0 || !holds_parts() || outside_) continue;  // neither a copy nor an average
    const run::DeviceTensorRef own =
        holds_parameters() ? state_part(cut.whole.name) : part(whole(cut, ""), cut, ranks_->rank());
    bytes.resize(own->bytes());
    own->download(bytes.data(), own->bytes());
    if (gathered_in_ && !holds_parameters()) masters_.at(cut.whole.name)->upload(bytes.data(), own->bytes());
    if (averages && averages_)
      tensors_(recipe::average_of(cut.whole.name), own->type())->upload(bytes.data(), own->bytes());
  }
  for (const auto& [name, lost] : lost_) lost->clear();
  if (store_) store_->forget_lost();
  forget_parameters();
}

void RankedStep::settle() {
  for (const auto& [name, lost] : lost_) lost->clear();
  if (store_) store_->forget_lost();
  if (!gathered_in_ || holds_parameters()) return;
  for (const Cut& cut : cuts_) {
    if (cut.rows_of(ranks_->rank()) == 0) continue;
    const run::DeviceTensorRef master = masters_.at(cut.whole.name);
    std::vector<uint8_t> bytes(master->bytes());
    master->download(bytes.data(), master->bytes());
    part(whole(cut, ""), cut, ranks_->rank())->upload(bytes.data(), master->bytes());
  }
  share("");
}

run::DeviceTensorRef RankedStep::state_part(const std::string& name) {
  const Cut& cut = *state_cuts_.at(name);
  if (cut.rows_of(ranks_->rank()) == 0) return nullptr;
  return tensors_(name, cut.part_of(type_in_parts(name), ranks_->rank()));
}

graph::Type RankedStep::type_in_parts(const std::string& name) const {
  const auto state = state_types_.find(name);
  return state == state_types_.end() ? parameter_types_.at(name) : state->second;
}

graph::Type RankedStep::part_type(const std::string& name) const {
  return state_cuts_.at(name)->part_of(type_in_parts(name), ranks_->rank());
}

std::vector<uint8_t> RankedStep::part_of_state(const std::string& name) {
  if (state_cuts_.at(name)->rows_of(ranks_->rank()) == 0) return {};
  std::vector<uint8_t> bytes(graph::byte_size(part_type(name)));
  if (TensorPager* const pager = outside(name))
    pager->read(name, bytes);
  else
    state_part(name)->download(bytes.data(), std::ssize(bytes));
  return bytes;
}

std::vector<uint8_t> RankedStep::whole_state(const std::string& name, bool everywhere) {
  const std::vector<uint8_t> own = part_of_state(name);
  const std::string bytes(own.begin(), own.end());
  const std::vector<std::string> parts = everywhere ? ranks_->all_gather(bytes) : ranks_->gather(bytes, 0);
  if (parts.empty()) return {};
  const graph::Type type = type_in_parts(name);
  const Cut& cut = *state_cuts_.at(name);
  std::vector<uint8_t> out(graph::byte_size(type));
  for (int r = 0; r < ranks_->size(); ++r) {
    if (cut.rows_of(r) == 0) continue;
    place_part(cut, type, {reinterpret_cast<const uint8_t*>(parts[r].data()), parts[r].size()}, r, out);
  }
  return out;
}

void RankedStep::put_state(const std::string& name, std::span<const uint8_t> all) {
  if (state_cuts_.at(name)->rows_of(ranks_->rank()) == 0) return;
  const std::vector<uint8_t> bytes = part_bytes(*state_cuts_.at(name), type_in_parts(name), all, ranks_->rank());
  if (TensorPager* const pager = outside(name)) return pager->write(name, bytes);
  state_part(name)->upload(bytes.data(), std::ssize(bytes));
}

}  // namespace lumen::model::train
