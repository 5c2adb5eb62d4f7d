#include "model/federate/rounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/draws.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/structured/json.h"
#include "graph/ir/text.h"
#include "model/file/checkpoint.h"

namespace lumen::model {
namespace {

constexpr uint64_t kSampleDraws = 0x73616d70, kMethodDraws = 0x6d657468;
constexpr double kUnknownLink = 1.25e6;  // bytes a second, until a client has measured its own
constexpr double kDrift = 0.3, kAskAgain = 0.25;
constexpr int64_t kAccuracyBatch = 100;
constexpr FederateMethod kMethods[] = {FederateMethod::whole,  FederateMethod::after, FederateMethod::aware,
                                       FederateMethod::drawn,  FederateMethod::speed, FederateMethod::data,
                                       FederateMethod::coarse, FederateMethod::full};
constexpr const char* kMethodNames[] = {"float", "P", "Q", "random", "speed", "data", "coarse", "full"};

double json_real(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = json_member(object, key, where);
  if (!value.is_number()) throw user_error("{}: \"{}\" is no number", where, key);
  return value.get<double>();
}

int64_t json_within(const nlohmann::json& object, const char* key, int64_t least, int64_t most,
                    const std::string& where) {
  const int64_t value = json_integer(object, key, where);
  if (value < least || value > most) throw user_error("{}: \"{}\" is {}, not {} to {}", where, key, value, least, most);
  return value;
}

uint64_t json_number(const nlohmann::json& object, const char* key, const std::string& where) {
  const std::string text = json_text(object, key, where);
  uint64_t out = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || text.size() > 20) throw user_error("{}: \"{}\" is no number", where, key);
    out = 10 * out + uint64_t(c - '0');
  }
  return out;
}

std::vector<double> json_reals(const nlohmann::json& object, const char* key, const std::string& where) {
  std::vector<double> out;
  for (const nlohmann::json& x : json_member(object, key, where)) {
    if (!x.is_number()) throw user_error("{}: \"{}\" has what is no number", where, key);
    out.push_back(x.get<double>());
  }
  return out;
}

FormatRef named(const FormatLibrary& formats, const std::string& name) {
  if (name.empty()) return nullptr;
  try {
    return formats.get(name);
  } catch (const Error& e) {
    throw Error(Exit::usage, e.what(), e.hint());
  }
}

}  // namespace

std::span<const FederateMethod> methods() {
  return kMethods;
}

std::string method_name(FederateMethod m) {
  return kMethodNames[size_t(m)];
}

FederateMethod named_method(const std::string& name) {
  for (const FederateMethod m : kMethods)
    if (method_name(m) == name) return m;
  throw Error(Exit::usage, fmt::format("'{}' is no method", name), "float, P, Q, random, speed, data, coarse or full");
}

std::string settings_text(const FederateSettings& s) {
  nlohmann::json config = nlohmann::json::object();
  for (const auto& [key, value] : s.network.config) config[key] = value;
  const AllocationSettings& a = s.allocation;
  return json_print({{"family", s.network.family}, {"size", s.network.size},
                     {"config", config},           {"seed", s.seed},
                     {"weights", s.weights},       {"activations", s.activations},
                     {"gradients", s.gradients},   {"upload", s.upload},
                     {"epochs", s.epochs},         {"batch", s.batch},
                     {"refresh", s.refresh},       {"rate", s.rate},
                     {"feedback", s.feedback},     {"clients", s.clients},
                     {"sampled", s.sampled},       {"rounds", s.rounds},
                     {"deadline", s.deadline},     {"method", method_name(s.method)},
                     {"kappa", a.kappa},           {"slack", a.slack},
                     {"lambda", a.lambda},         {"every", a.every},
                     {"first", a.first},           {"greed", a.greed}},
                    "settings", 2);
}

FederateSettings parse_federate_settings(const std::string& text, const std::string& where) {
  const nlohmann::json all = parse_json(text, where);
  constexpr int64_t kMany = 1'000'000'000;
  FederateSettings s;
  s.network.family = json_text(all, "family", where);
  s.network.size = json_text(all, "size", where);
  const nlohmann::json& config = json_member(all, "config", where);
  if (!config.is_object()) throw user_error("{}: \"config\" is no object", where);
  for (const auto& [key, value] : config.items()) s.network.config[key] = json_real(config, key.c_str(), where);
  s.seed = json_within(all, "seed", 0, 0xffffffff, where);
  s.network.seed = uint32_t(s.seed);
  for (const auto& [key, to] : {std::pair("weights", &s.weights),
                                {"activations", &s.activations},
                                {"gradients", &s.gradients},
                                {"upload", &s.upload}})
    *to = json_text(all, key, where);
  s.epochs = json_within(all, "epochs", 1, 100'000, where);
  s.batch = json_within(all, "batch", 1, 1 << 16, where);
  s.refresh = json_within(all, "refresh", 0, kMany, where);
  s.rate = json_real(all, "rate", where);
  s.feedback = json_boolean(all, "feedback", true, where);
  s.clients = json_within(all, "clients", 1, kMany, where);
  s.sampled = json_within(all, "sampled", 1, s.clients, where);
  s.rounds = json_within(all, "rounds", 1, kMany, where);
  s.deadline = json_real(all, "deadline", where);
  s.method = named_method(json_text(all, "method", where));
  AllocationSettings& a = s.allocation;
  for (const auto& [key, to] :
       {std::pair("kappa", &a.kappa), {"slack", &a.slack}, {"lambda", &a.lambda}, {"greed", &a.greed}})
    *to = json_real(all, key, where);
  a.every = json_within(all, "every", 1, kMany, where);
  a.first = json_within(all, "first", 1, kMany, where);
  a.epochs = s.epochs;
  return s;
}

LocalSettings local_settings(const FederateSettings& s, const FormatLibrary& formats) {
  LocalSettings out;
  out.formats = {named(formats, s.weights), named(formats, s.activations), named(formats, s.gradients),
                 named(formats, s.upload)};
  out.epochs = s.epochs;
  out.batch = s.batch;
  out.rate = s.rate;
  out.refresh = s.refresh;
  return out;
}

uint64_t model_hash(const FederateSettings& settings, const Library& library) {
  const FamilyRef family = library.family(settings.network.family);
  const graph::Config config = family->config(settings.network.size, settings.network.config);
  std::string all = settings_text(settings);
  graph::Graph loss = family->function("loss", config);
  graph::inline_calls(loss);
  all += graph::print(loss);
  for (const Parameter& p : family->parameters(config)) all += fmt::format("{} {}\n", p.name, p.count());
  for (const std::string* name : {&settings.weights, &settings.activations, &settings.gradients, &settings.upload})
    if (const FormatRef f = named(library.formats(), *name)) all += f->hash.hex();
  return hash_text(all).low;
}

std::vector<int64_t> sampled_clients(int64_t clients, int64_t sampled, uint64_t seed, int64_t round) {
  std::vector<int64_t> all(clients);
  std::iota(all.begin(), all.end(), 0);
  Draws draws(seed, kSampleDraws, round);
  for (int64_t i = 0; i < sampled; ++i) std::swap(all[i], all[i + draws.below(clients - i)]);
  all.resize(sampled);
  std::sort(all.begin(), all.end());
  return all;
}

void average_into(Weights& global, const std::map<int64_t, ClientAnswer>& answers) {
  double examples = 0;
  for (const auto& [client, answer] : answers) examples += double(answer.examples);
  if (examples <= 0) return;
  for (auto& [name, weights] : global) {
    std::vector<double> sum(weights.size());
    for (const auto& [client, answer] : answers) {
      const std::vector<float>& change = answer.change.at(name);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += double(answer.examples) * change[i];
    }
    for (size_t i = 0; i < sum.size(); ++i) weights[i] = float(weights[i] + sum[i] / examples);
  }
}

double accuracy_of(Network& network, const Weights& weights, const Examples& test, int64_t most) {
  for (const auto& [name, numbers] : weights) network.write(name, numbers);
  const int64_t count = std::min(test.count(), most), batch = std::min(kAccuracyBatch, count);
  int64_t right = 0;
  for (int64_t at = 0; at < count; at += batch) {
    // The last batch reaches back, so that all have one size; what it shares with the one before counts once.
    const int64_t from = std::min(at, count - batch);
    std::vector<int64_t> which(batch);
    std::iota(which.begin(), which.end(), from);
    const std::vector<float> logits = network.run("logits", test.batch(which));
    const int64_t classes = std::ssize(logits) / batch;
    for (int64_t b = at - from; b < batch; ++b) {
      const auto row = logits.begin() + b * classes;
      right += std::max_element(row, row + classes) - row == test.shown[which[b]];
    }
  }
  return count > 0 ? double(right) / count : 0;
}

Weights through_format(run::Engine& engine, const Network& network, const FormatRef& format, const Weights& weights) {
  if (!format) return weights;
  Weights zero = weights;
  for (auto& [name, numbers] : zero) std::fill(numbers.begin(), numbers.end(), 0.0F);
  return decoded_change(engine, network, format, encoded_change(engine, network, format, zero, weights, nullptr));
}

Allocator::Allocator(FederateMethod method, AllocationSettings settings, uint64_t seed,
                     std::vector<ClientFacts> clients)
    : method_(method), settings_(settings), clients_(std::move(clients)), is_known_(clients_.size()) {
  const auto began = std::chrono::steady_clock::now();
  const size_t n = clients_.size();
  const Allocation coarse = coarse_allocation(clients_, settings_);
  const auto all = [&](ClientStrategy s) { return Allocation(n, s); };
  switch (method_) {
    case FederateMethod::whole:
      current_ = all(ClientStrategy::whole);
      break;
    case FederateMethod::after:
      current_ = all(ClientStrategy::after);
      break;
    case FederateMethod::aware:
      current_ = all(ClientStrategy::aware);
      break;
    case FederateMethod::drawn:
      current_ = drawn_allocation(n, aware_count(coarse), seed ^ kMethodDraws);
      break;
    case FederateMethod::speed:
      current_ = speed_allocation(clients_, settings_);
      break;
    case FederateMethod::data:
      current_ = data_allocation(clients_, aware_count(coarse), settings_);
      break;
    case FederateMethod::coarse:
      current_ = coarse;
      break;
    case FederateMethod::full:
      current_ = coarse;
      break;
  }
  if (method_ == FederateMethod::full) adjuster_.emplace(settings_, coarse, seed ^ kMethodDraws);
  overhead_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void Allocator::saw(size_t client, ClientStrategy strategy, double off, double seconds) {
  const auto began = std::chrono::steady_clock::now();
  ClientFacts& c = clients_.at(client);
  if (strategy != ClientStrategy::whole) {
    c.off[size_t(strategy)] = off;
    is_known_[client][size_t(strategy)] = true;
  }
  const double expected = c.seconds(strategy, settings_.epochs);
  if (expected > 0 && seconds > 0 && std::fabs(seconds / expected - 1) > kDrift) {
    for (double& rate : c.rate) rate *= expected / seconds;
    // The boundary again, for it alone.
    if (method_ == FederateMethod::coarse)
      current_[client] = is_worth_aware(clients_, client, settings_) ? ClientStrategy::aware : ClientStrategy::after;
  }
  overhead_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void Allocator::finish_round(double loss, double seconds, int64_t round, int64_t rounds) {
  const auto began = std::chrono::steady_clock::now();
  // Who has not been measured in a strategy is taken for the mean of those who have.
  for (const ClientStrategy s : {ClientStrategy::after, ClientStrategy::aware}) {
    double sum = 0;
    int64_t known = 0;
    for (size_t i = 0; i < clients_.size(); ++i)
      if (is_known_[i][size_t(s)]) {
        sum += clients_[i].off[size_t(s)];
        ++known;
      }
    for (size_t i = 0; known > 0 && i < clients_.size(); ++i)
      if (!is_known_[i][size_t(s)]) clients_[i].off[size_t(s)] = sum / known;
  }
  loss_sum_ += loss;
  seconds_sum_ += seconds;
  ++in_window_;
  if (!has_before_) {
    loss_before_ = loss;
    has_before_ = true;
  }
  if (adjuster_ && in_window_ >= settings_.every) {
    const double mean = loss_sum_ / in_window_;
    adjuster_->finish({loss_before_, mean, seconds_sum_ / in_window_, double(round + 1 - in_window_) / rounds},
                      clients_);
    current_ = adjuster_->current();
    loss_before_ = mean;
    loss_sum_ = seconds_sum_ = 0;
    in_window_ = 0;
  }
  overhead_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

nlohmann::json Allocator::state() const {
  nlohmann::json clients = nlohmann::json::array();
  std::string words;
  for (size_t i = 0; i < clients_.size(); ++i) {
    const ClientFacts& c = clients_[i];
    clients.push_back({{"rate", c.rate},
                       {"off", c.off},
                       {"link", c.link},
                       {"known", int(is_known_[i][1]) + 2 * int(is_known_[i][2])}});
    words += char('0' + int(current_[i]));
  }
  return {{"clients", clients},
          {"current", words},
          {"adjuster", adjuster_ ? adjuster_->state() : nlohmann::json()},
          {"loss_sum", loss_sum_},
          {"seconds_sum", seconds_sum_},
          {"loss_before", loss_before_},
          {"in_window", in_window_},
          {"has_before", has_before_}};
}

void Allocator::set_state(const nlohmann::json& state, const std::string& where) {
  const nlohmann::json& clients = json_member(state, "clients", where);
  const std::string words = json_text(state, "current", where);
  if (!clients.is_array() || clients.size() != clients_.size() || words.size() != clients_.size())
    throw user_error("{}: it is of {} clients", where, clients.size());
  for (size_t i = 0; i < clients_.size(); ++i) {
    for (const auto& [key, to] : {std::pair("rate", &clients_[i].rate), {"off", &clients_[i].off}}) {
      const std::vector<double> values = json_reals(clients[i], key, where);
      if (values.size() != to->size()) throw user_error("{}: \"{}\" has {} numbers", where, key, values.size());
      std::copy(values.begin(), values.end(), to->begin());
    }
    clients_[i].link = json_real(clients[i], "link", where);
    const int64_t known = json_within(clients[i], "known", 0, 3, where);
    is_known_[i] = {false, (known & 1) != 0, (known & 2) != 0};
    if (words[i] < '0' || words[i] >= '0' + kStrategies) throw user_error("{}: no strategy", where);
    current_[i] = ClientStrategy(words[i] - '0');
  }
  if (adjuster_) adjuster_->set_state(json_member(state, "adjuster", where), where);
  loss_sum_ = json_real(state, "loss_sum", where);
  seconds_sum_ = json_real(state, "seconds_sum", where);
  loss_before_ = json_real(state, "loss_before", where);
  in_window_ = json_within(state, "in_window", 0, 1'000'000'000, where);
  has_before_ = json_boolean(state, "has_before", false, where);
}

FederateServer::FederateServer(run::Engine& engine, const Library& library, FederateSettings settings,
                               std::filesystem::path folder, Say say)
    : engine_(engine),
      library_(library),
      settings_(std::move(settings)),
      folder_(std::move(folder)),
      say_(std::move(say)),
      network_(std::make_unique<Network>(engine, library, settings_.network)),
      local_(local_settings(settings_, library.formats())),
      model_(model_hash(settings_, library)),
      global_(weights_of(*network_)) {
  // Refuses formats before anybody has come.
  (void)LocalTrainer(engine, *network_, local_);
  base_ = hash_of(global_);
}

std::unique_ptr<FederateServer> FederateServer::resumed(run::Engine& engine, const Library& library,
                                                        const std::filesystem::path& folder, int64_t rounds, Say say) {
  const auto newest = latest_checkpoint(folder);
  if (!newest) throw user_error("{}: no checkpoint of a federated run", folder.string());
  const Checkpoint checkpoint = load_checkpoint(*newest, library.formats());
  FederateSettings settings = parse_federate_settings(checkpoint.state.config, newest->string());
  settings.rounds = std::max(settings.rounds, rounds);
  auto out = std::make_unique<FederateServer>(engine, library, std::move(settings), folder, std::move(say));
  out->restore(*newest);
  return out;
}

size_t FederateServer::most_bytes() const {
  // What an update has beside its tensors, and their names.
  return 4096 + 1024 * global_.size() + 4 * size_t(network_->trained_numbers()) +
         size_t(change_bytes(*network_, local_.formats.upload)) + 8 * kMostClasses;
}

FederateServer::Registered& FederateServer::known(const ClientName& who) {
  const auto at = registered_.find(who.name);
  if (at == registered_.end()) throw user_error("client '{}' has not joined", who.name);
  if (at->second.join.who.key != who.key) throw user_error("client '{}' is somebody else", who.name);
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
    default:
      throw no_message("clients say hello, join, ask and send updates");
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
  if (is_done()) return;
  sampled_ = sampled_clients(std::ssize(names_), std::min<int64_t>(settings_.sampled, std::ssize(names_)),
                             settings_.seed, round_);
  base_ = hash_of(global_);
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
  // The very update that was taken: its client did not hear so.
  bool taken = r.taken_base == m.base && r.taken_round == m.round + 1;
  const bool is_now = allocator_ && !is_done() && int64_t{m.round} == round_ && m.base == base_ &&
                      std::binary_search(sampled_.begin(), sampled_.end(), r.number) && !answers_.contains(r.number);
  if (!taken && is_now) {
    take(r, m);
    taken = true;
    look_at_clock();
  }
  return frame_of(FederateKind::verdict, std::string(1, taken ? 1 : 0));
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
  if (m.strategy != allocator_->current()[size_t(from.number)])
    throw user_error("the update of '{}' is in {}, and {} was asked for", m.who.name, strategy_name(m.strategy),
                     strategy_name(allocator_->current()[size_t(from.number)]));
  answers_[from.number] = std::move(answer);
  UpdateMessage facts = m;
  facts.change = {};
  answered_[from.number] = std::move(facts);
  from.taken_round = m.round + 1;
  from.taken_base = m.base;
}

void FederateServer::look_at_clock() {
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
    const double n = double(answers_.at(client).examples);
    loss += n * m.last_loss;
    examples += n;
    allocator_->saw(size_t(client), m.strategy, m.off, m.seconds);
  }
  average_into(global_, answers_);
  allocator_->finish_round(loss / examples, took, round_, settings_.rounds);
  ++round_;
  const size_t n = answers_.size();
  begin_round();
  save();
  say_(fmt::format("round {}/{} | {} answers | loss {:.4f} | {:.2f} s | {} of {} in Q | choosing {:.3f} ms in all{}",
                   round_, settings_.rounds, n, loss / examples, took, aware, names_.size(),
                   allocator_->overhead() * 1e3, missing));
  if (on_round) on_round();
}

void FederateServer::save() const {
  CheckpointContent content;
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
  for (const Parameter& p : network_->parameters()) {
    TensorSpec spec{p.name, {}, {}};
    for (const graph::Dim& d : p.shape) spec.shape.push_back(d.number());
    content.weights.push_back(spec);
  }
  content.fetch = [&](const TensorSpec& spec) -> std::span<const uint8_t> {
    const std::vector<float>& numbers = global_.at(spec.name);
    return {reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(float)};
  };
  (void)save_checkpoint(folder_, content, 2);
}

void FederateServer::restore(const std::filesystem::path& folder) {
  const std::string where = folder.string();
  const Checkpoint checkpoint = load_checkpoint(folder, library_.formats());
  for (const Parameter& p : network_->parameters()) {
    const StoredTensor& stored = checkpoint.weights->get(p.name);
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

}  // namespace lumen::model
