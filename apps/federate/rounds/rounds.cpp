#include "apps/federate/rounds/rounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/draws/draws.h"
#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/structured/json.h"
#include "base/structured/json_numbers.h"
#include "model/file/checkpoint.h"

namespace lumen::federate {
namespace {

constexpr uint64_t kSampleDraws = 0x73616d70;
constexpr double kUnknownLink = 1.25e6;  // bytes per second, until a client has measured its own
constexpr double kAskAgain = 0.25;

}  // namespace

std::vector<int64_t> sampled_clients(int64_t clients, int64_t sampled, uint64_t seed, int64_t round) {
  std::vector<int64_t> all(clients);
  std::iota(all.begin(), all.end(), 0);
  Draws draws(seed, kSampleDraws, round);
  for (int64_t i = 0; i < sampled; ++i) std::swap(all[i], all[i + draws.below(clients - i)]);
  all.resize(sampled);
  std::sort(all.begin(), all.end());
  return all;
}

double examples_in(const std::map<int64_t, ClientAnswer>& answers) {
  double out = 0;
  for (const auto& [client, answer] : answers) out += double(answer.examples);
  return out;
}

// The mean of one tensor, by examples.
std::vector<double> mean_change(const std::map<int64_t, ClientAnswer>& answers, const std::string& name, size_t count) {
  std::vector<double> sum(count);
  for (const auto& [client, answer] : answers) {
    const std::vector<float>& change = answer.change.at(name);
    for (size_t i = 0; i < count; ++i) sum[i] += double(answer.examples) * change[i];
  }
  const double examples = examples_in(answers);
  for (double& x : sum) x /= examples;
  return sum;
}

void average_into(Weights& global, const std::map<int64_t, ClientAnswer>& answers) {
  if (examples_in(answers) <= 0) return;
  for (auto& [name, weights] : global) {
    const std::vector<double> mean = mean_change(answers, name, weights.size());
    for (size_t i = 0; i < mean.size(); ++i) weights[i] = float(weights[i] + mean[i]);
  }
}

FederateServer::FederateServer(run::Engine& engine, const model::arch::Library& library, FederateSettings settings,
                               std::filesystem::path folder, Say say)
    : engine_(engine),
      library_(library),
      settings_(std::move(settings)),
      folder_(std::move(folder)),
      say_(std::move(say)),
      network_(std::make_unique<apps::Network>(engine, library, settings_.network)),
      local_(local_settings(settings_, library.formats())),
      model_(model_hash(settings_, library)),
      global_(weights_of(*network_)) {
  // Reports unsuitable formats before any client joins.
  (void)LocalTrainer(engine, *network_, local_);
  base_ = hash_of(global_);
}

std::unique_ptr<FederateServer> FederateServer::resumed(run::Engine& engine, const model::arch::Library& library,
                                                        const std::filesystem::path& folder, int64_t rounds, Say say) {
  const auto newest = model::file::latest_checkpoint(folder);
  if (!newest) throw user_error("{}: no checkpoint of a federated run", folder.string());
  const model::file::Checkpoint checkpoint = model::file::load_checkpoint(*newest, library.formats());
  FederateSettings settings = parse_federate_settings(checkpoint.state.config, newest->string());
  settings.rounds = std::max(settings.rounds, rounds);
  auto out = std::make_unique<FederateServer>(engine, library, std::move(settings), folder, std::move(say));
  out->restore(*newest);
  return out;
}

size_t FederateServer::most_bytes() const {
  // Size of an update apart from its tensors, and their names.
  return 4096 + 1024 * global_.size() + 4 * size_t(network_->trained_numbers()) +
         size_t(change_bytes(*network_, local_.formats.upload)) + 8 * kMostClasses;
}

FederateServer::Registered& FederateServer::known(const ClientName& who) {
  const auto at = registered_.find(who.name);
  if (at == registered_.end()) throw user_error("client '{}' has not joined", who.name);
  if (at->second.join.who.key != who.key) throw user_error("client '{}' has another identity", who.name);
  return at->second;
}

Frame FederateServer::answer(const Frame& frame) {
  look_at_clock();
  switch (FederateKind(frame.kind)) {
    case FederateKind::hello:
      (void)unpack_speaker(frame.content);
      return frame_of(FederateKind::welcome, settings_text(settings_));
    case FederateKind::join:
      return joined(unpack_join(frame.content));
    case FederateKind::ask:
      return task_for(unpack_speaker(frame.content));
    case FederateKind::update:
      return update_of(unpack_update(frame.content));
    case FederateKind::masked: {
      MaskedMessage m = unpack_masked(frame.content);
      Registered& from = known(m.who);
      if (sum_ && m.of.round == round_ && m.of.base == base_)
        sum_->take_words(from.number, m.of.attempt, std::move(m.words));
      return wished_of(from, m.of);
    }
    case FederateKind::seed: {
      const SeedMessage m = unpack_seed(frame.content);
      Registered& from = known(m.who);
      if (sum_ && m.of.round == round_ && m.of.base == base_) sum_->take_seed(from.number, m.of.attempt, m.seed);
      return wished_of(from, m.of);
    }
    default:
      throw no_message("clients send hello, join, ask and update messages");
  }
}

Frame FederateServer::joined(const JoinMessage& m) {
  if (m.model != model_)
    throw user_error("client '{}' would train another model: its family, formats or program are not the server's",
                     m.who.name);
  if (const auto at = registered_.find(m.who.name); at != registered_.end()) {
    if (at->second.join.who.key != m.who.key) throw user_error("there is a client '{}' already", m.who.name);
    at->second.join = m;
    return task_for(m.who);
  }
  if (std::ssize(registered_) >= settings_.clients)
    throw user_error("the run has its {} clients, and '{}' is none of them", settings_.clients, m.who.name);
  registered_[m.who.name].join = m;
  say_(fmt::format("{} joined: {} examples, {:.0f} / {:.0f} / {:.0f} a second in float, P, Q; {} of {} clients",
                   m.who.name, m.examples, m.rate[0], m.rate[1], m.rate[2], registered_.size(), settings_.clients));
  if (std::ssize(registered_) == settings_.clients) {
    begin();
    save();
  }
  return task_for(m.who);
}

std::vector<ClientFacts> FederateServer::facts() const {
  double examples = 0;
  std::vector<double> all;
  for (const auto& [name, r] : registered_) {
    examples += double(r.join.examples);
    if (all.size() < r.join.counts.size()) all.resize(r.join.counts.size());
    for (size_t k = 0; k < r.join.counts.size(); ++k) all[k] += r.join.counts[k];
  }
  std::vector<ClientFacts> out;
  for (const auto& [name, r] : registered_) {
    ClientFacts f;
    f.examples = int64_t(r.join.examples);
    f.share = double(r.join.examples) / examples;
    std::vector<double> own = r.join.counts;
    own.resize(all.size());
    f.distance = r.join.counts.empty() ? 0 : label_distance(own, all);
    f.rate = r.join.rate;
    f.set_up = r.join.set_up;
    f.memory = r.join.memory;
    if (r.join.memory_there > 0) f.memory_there = r.join.memory_there;
    f.bytes_down = 4.0 * double(network_->trained_numbers());
    f.bytes_up = {f.bytes_down, double(change_bytes(*network_, local_.formats.upload)),
                  double(change_bytes(*network_, local_.formats.upload))};
    f.link = r.join.link > 0 ? r.join.link : kUnknownLink;
    out.push_back(f);
  }
  return out;
}

std::vector<bool> FederateServer::hides_labels() const {
  std::vector<bool> out;
  for (const auto& [name, r] : registered_) out.push_back(r.join.counts.empty());
  return out;
}

void FederateServer::begin() {
  names_.clear();
  for (auto& [name, r] : registered_) {
    r.number = std::ssize(names_);
    names_.push_back(name);
  }
  allocator_.emplace(settings_.method, settings_.allocation, settings_.seed, facts());
  say_(fmt::format("{} of {} clients begin in Q", aware_count(allocator_->current()), names_.size()));
  begin_round();
}

void FederateServer::begin_round() {
  answers_.clear();
  answered_.clear();
  sum_.reset();
  if (is_done()) return;
  sampled_ = sampled_clients(std::ssize(names_), std::min<int64_t>(settings_.sampled, std::ssize(names_)),
                             settings_.seed, round_);
  base_ = hash_of(global_);
  if (settings_.is_secure) sum_.emplace(uint32_t(round_), base_, numbers_of(global_, 0).size());
  began_ = Clock::now();
}

Frame FederateServer::task_for(const ClientName& who) {
  const Registered& r = known(who);
  const auto wait = [&](double seconds, const std::string& why) {
    return frame_of(FederateKind::wait, pack_wait({seconds, why}));
  };
  if (is_done()) {
    told_[who.name] = true;
    std::string rounds;
    put_number(rounds, uint32_t(round_));
    return frame_of(FederateKind::done, rounds);
  }
  if (!allocator_) return wait(kAskAgain, "others have to join");
  if (answers_.contains(r.number)) return wait(kAskAgain, "others have to answer");
  if (!std::binary_search(sampled_.begin(), sampled_.end(), r.number))
    return wait(kAskAgain, "others train in this round");
  TaskMessage task{.round = uint32_t(round_), .base = base_, .strategy = allocator_->current()[size_t(r.number)]};
  task.seconds = std::max(0.0, settings_.deadline - std::chrono::duration<double>(Clock::now() - began_).count());
  task.weights = global_;
  return frame_of(FederateKind::task, pack_task(task));
}

Frame FederateServer::update_of(UpdateMessage m) {
  Registered& r = known(m.who);
  // An update that was already accepted: its client missed the reply.
  bool taken = r.taken_base == m.base && r.taken_round == m.round + 1;
  const bool is_now = allocator_ && !is_done() && int64_t{m.round} == round_ && m.base == base_ &&
                      std::binary_search(sampled_.begin(), sampled_.end(), r.number) && !answers_.contains(r.number);
  if (!taken && is_now) {
    if (settings_.is_secure) {
      offered(r, m);
      return wished_of(r, {m.round, m.base, 0});
    }
    take(r, m);
    taken = true;
    look_at_clock();
  }
  return frame_of(FederateKind::verdict, std::string(1, taken ? 1 : 0));
}

void FederateServer::require_strategy(const Registered& from, const UpdateMessage& m) const {
  const ClientStrategy asked = allocator_->current()[size_t(from.number)];
  if (m.strategy != asked)
    throw user_error("the update of '{}' is in {}, and {} was asked for", m.who.name, strategy_name(m.strategy),
                     strategy_name(asked));
}

void FederateServer::take(Registered& from, const UpdateMessage& m) {
  ClientAnswer answer{int64_t(from.join.examples), {}};
  try {
    answer.change = decoded_change(engine_, *network_,
                                   m.strategy == ClientStrategy::whole ? nullptr : local_.formats.upload, m.change);
  } catch (const Error& e) {
    say_(fmt::format("an update of {} is refused: {}", m.who.name, e.what()));
    throw user_error("the update of '{}' is refused: {}", m.who.name, e.what());
  }
  require_strategy(from, m);
  answers_[from.number] = std::move(answer);
  UpdateMessage facts = m;
  facts.change = {};
  answered_[from.number] = std::move(facts);
  from.taken_round = m.round + 1;
  from.taken_base = m.base;
}

void FederateServer::look_at_clock() {
  if (sum_) look_at_sum();
  if (!allocator_ || is_done() || answers_.empty()) return;
  const bool late = std::chrono::duration<double>(Clock::now() - began_).count() > settings_.deadline;
  if (std::ssize(answers_) == std::ssize(sampled_) || late) close_round();
}

void FederateServer::close_round() {
  const double took = std::chrono::duration<double>(Clock::now() - began_).count();
  double loss = 0, examples = 0;
  std::string missing;
  const size_t aware = aware_count(allocator_->current());
  for (const int64_t client : sampled_) {
    const auto at = answered_.find(client);
    if (at == answered_.end()) {
      missing += (missing.empty() ? " | without " : ", ") + names_[size_t(client)];
      continue;
    }
    const UpdateMessage& m = at->second;
    const double n = double(registered_.at(m.who.name).join.examples);
    loss += n * m.last_loss;
    examples += n;
    allocator_->saw(size_t(client), m.strategy, m.off, m.seconds);
  }
  const size_t n = answered_.size();
  if (sum_ && n > 0) loss = examples * add_sum();
  if (!sum_) {
    allocator_->saw_changes(answers_, hides_labels());
    average_into(global_, answers_);
  }
  if (n > 0) allocator_->finish_round(loss / examples, took, round_, settings_.rounds);
  ++round_;
  begin_round();
  save();
  if (n == 0)
    say_(fmt::format("round {}/{} came to nothing: too few clients ended it", round_, settings_.rounds));
  else
    say_(fmt::format("round {}/{} | {} answers | loss {:.4f} | {:.2f} s | {} of {} in Q | choosing {:.3f} ms in all{}",
                     round_, settings_.rounds, n, loss / examples, took, aware, names_.size(),
                     allocator_->overhead() * 1e3, missing));
  if (on_round) on_round();
}

void FederateServer::save() const {
  model::file::CheckpointContent content;
  content.state.step = round_;
  content.state.seed = settings_.seed;
  content.state.config = settings_text(settings_);
  nlohmann::json clients = nlohmann::json::array();
  for (const auto& [name, r] : registered_)
    clients.push_back({{"name", name},
                       {"key", std::to_string(r.join.who.key)},
                       {"examples", int64_t(r.join.examples)},
                       {"counts", r.join.counts},
                       {"rate", r.join.rate},
                       {"set_up", r.join.set_up},
                       {"memory", r.join.memory},
                       {"memory_there", r.join.memory_there},
                       {"link", r.join.link},
                       {"taken_round", int64_t{r.taken_round}},
                       {"taken_base", std::to_string(r.taken_base)}});
  content.state.more = {{"clients", clients}, {"allocator", allocator_->state()}};
  for (const model::arch::Parameter& p : network_->parameters()) {
    model::file::TensorSpec spec{p.name, {}, {}};
    for (const graph::Dim& d : p.shape) spec.shape.push_back(d.number());
    content.weights.push_back(spec);
  }
  content.fetch = [&](const model::file::TensorSpec& spec) -> std::span<const uint8_t> {
    const std::vector<float>& numbers = global_.at(spec.name);
    return {reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(float)};
  };
  (void)model::file::save_checkpoint(folder_, content, 2);
}

void FederateServer::restore(const std::filesystem::path& folder) {
  const std::string where = folder.string();
  const model::file::Checkpoint checkpoint = model::file::load_checkpoint(folder, library_.formats());
  for (const model::arch::Parameter& p : network_->parameters()) {
    const model::file::StoredTensor& stored = checkpoint.weights->get(p.name);
    std::vector<float>& numbers = global_.at(p.name);
    if (stored.element.format || stored.element.scalar != Scalar::f32 ||
        stored.blob_bytes() < std::ssize(numbers) * 4 || stored.rows() * stored.columns() != std::ssize(numbers))
      throw user_error("{}: '{}' is no tensor of this family and config", where, p.name);
    const std::vector<uint8_t> blob = stored.blob();
    std::copy_n(blob.begin(), numbers.size() * sizeof(float), reinterpret_cast<uint8_t*>(numbers.data()));
    for (const float x : numbers)
      if (!std::isfinite(x)) throw Error(Exit::numeric, fmt::format("{}: '{}' is not finite", where, p.name));
  }
  const nlohmann::json& clients = json_member(checkpoint.state.more, "clients", where);
  if (!clients.is_array()) throw user_error("{}: \"clients\" is no array", where);
  for (const nlohmann::json& c : clients) {
    JoinMessage m{.who = {json_text(c, "name", where), json_number(c, "key", where)}};
    require_client_name(m.who.name);
    m.model = model_;
    m.examples = uint64_t(json_within(c, "examples", 1, int64_t{1} << 40, where));
    m.counts = json_reals(c, "counts", where);
    for (const auto& [key, to] : {std::pair("rate", &m.rate), {"set_up", &m.set_up}, {"memory", &m.memory}}) {
      const std::vector<double> values = json_reals(c, key, where);
      if (values.size() != to->size()) throw user_error("{}: \"{}\" has {} numbers", where, key, values.size());
      std::copy(values.begin(), values.end(), to->begin());
    }
    m.memory_there = json_real(c, "memory_there", where);
    m.link = json_real(c, "link", where);
    Registered& r = registered_[m.who.name];
    r.join = std::move(m);
    r.taken_round = uint32_t(json_within(c, "taken_round", 0, 0xffffffff, where));
    r.taken_base = json_number(c, "taken_base", where);
  }
  if (std::ssize(registered_) != settings_.clients)
    throw user_error("{}: {} clients of {}", where, registered_.size(), settings_.clients);
  round_ = checkpoint.state.step;
  begin();
  allocator_->set_state(json_member(checkpoint.state.more, "allocator", where), where);
}

}  // namespace lumen::federate
