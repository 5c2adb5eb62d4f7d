// The rounds of a federated run: sampling of clients, their strategies, averaging of their updates, and the server's
// state, which lets it resume at its last round after any failure. Updates are added in the order of clients' names, so
// the same clients give the same bits in any order of arrival. Proved by tests/apps/federate/rounds.
//
// May include: apps/draws, apps/federate, apps/federate/secure, base, base/structured, graph/ir, model/file.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/federate/allocation.h"
#include "apps/federate/messages.h"
#include "apps/federate/secure/sum.h"

namespace lumen::federate {

// The choice of strategies: one for all, or mixtures that studies compare.
enum class FederateMethod : uint8_t { whole, after, aware, drawn, speed, data, coarse, full };
std::span<const FederateMethod> methods();
std::string method_name(FederateMethod m);             // "float", "P", "Q", "random", "speed", "data", "coarse", "full"
FederateMethod named_method(const std::string& name);  // Error (usage)

// The settings shared by server and clients: as JSON in the welcome and in checkpoints.
struct FederateSettings {
  apps::NetworkSettings network;
  std::string weights, activations, gradients, upload;  // names of formats; empty: float
  int64_t epochs = 1, batch = 32, refresh = 2;
  double rate = 0.05;
  bool feedback = true;  // the rounding error is kept for the next upload
  int64_t clients = 3, sampled = 3, rounds = 10;
  double deadline = 60;    // seconds of a round, counted from its first answer
  bool is_secure = false;  // the server sees only sums of updates (secure/secure.h)
  uint64_t seed = 1;
  FederateMethod method = FederateMethod::full;
  AllocationSettings allocation;
};
std::string settings_text(const FederateSettings& settings);
FederateSettings parse_federate_settings(const std::string& text, const std::string& where);
// Error (usage) for a format that the library does not have.
LocalSettings local_settings(const FederateSettings& settings, const FormatLibrary& formats);
// A hash of the loss, the parameters and the formats: if it differs, client and server compute different things.
uint64_t model_hash(const FederateSettings& settings, const model::arch::Library& library);

// All tensors' numbers concatenated, in the order of names, followed by `last`.
std::vector<float> numbers_of(const Weights& weights, double last);
// The content of an update with secure sums.
ClientChange key_instead(const KeyBytes& key);

// Indices of a round's clients, ascending: a function of the seed and the round only.
std::vector<int64_t> sampled_clients(int64_t clients, int64_t sampled, uint64_t seed, int64_t round);

struct ClientAnswer {
  int64_t examples = 0;
  Weights change;
};
// The mean of one tensor's changes, by examples, in the order of the map.
std::vector<double> mean_change(const std::map<int64_t, ClientAnswer>& answers, const std::string& name, size_t count);
double examples_in(const std::map<int64_t, ClientAnswer>& answers);
// Adds the mean change to all tensors.
void average_into(Weights& global, const std::map<int64_t, ClientAnswer>& answers);

// Chooses strategies during the rounds, by a method.
class Allocator {
 public:
  Allocator(FederateMethod method, AllocationSettings settings, uint64_t seed, std::vector<ClientFacts> clients);
  const Allocation& current() const { return current_; }
  const std::vector<ClientFacts>& clients() const { return clients_; }
  // Records an update: the relative error of its weights, and its client's total time.
  void saw(size_t client, ClientStrategy strategy, double off, double seconds);
  // Records the clients' changes. For clients with private labels, the distance is that of their changes from the mean
  // (change_distance, section 3).
  void saw_changes(const std::map<int64_t, ClientAnswer>& answers, const std::vector<bool>& hides_labels);
  // Ends `round` of `rounds`, counted from 0; with the mean loss of its clients, and its time.
  void finish_round(double loss, double seconds, int64_t round, int64_t rounds);
  double overhead() const { return overhead_; }  // seconds spent on choosing

  nlohmann::json state() const;
  void set_state(const nlohmann::json& state, const std::string& where);

 private:
  void again_for(size_t client);

  FederateMethod method_;
  AllocationSettings settings_;
  std::vector<ClientFacts> clients_;
  std::vector<std::array<bool, kStrategies>> is_known_;  // `off` was measured
  Allocation current_;
  std::optional<FineAdjuster> adjuster_;
  double loss_sum_ = 0, seconds_sum_ = 0, loss_before_ = 0;
  int64_t in_window_ = 0;
  bool has_before_ = false;
  double overhead_ = 0;
};

// The server without its sockets: answers messages, closes rounds, writes a checkpoint after each.
class FederateServer {
 public:
  using Say = std::function<void(const std::string&)>;  // prints a line
  // Starts a new run in `folder`, or resumes the existing one (with its settings, except the number of rounds).
  FederateServer(run::Engine& engine, const model::arch::Library& library, FederateSettings settings,
                 std::filesystem::path folder, Say say);
  static std::unique_ptr<FederateServer> resumed(run::Engine& engine, const model::arch::Library& library,
                                                 const std::filesystem::path& folder, int64_t rounds, Say say);

  Frame answer(const Frame& frame);  // Error with the text for the client
  void look_at_clock();              // closes a round whose deadline has passed
  bool is_done() const { return round_ >= settings_.rounds; }
  // Whether all clients have been told that the run is over.
  bool all_know() const { return is_done() && told_.size() >= registered_.size(); }
  size_t most_bytes() const;  // of a client's message
  int64_t round() const { return round_; }
  const FederateSettings& settings() const { return settings_; }
  const Weights& weights() const { return global_; }
  apps::Network& network() { return *network_; }
  const Allocator* allocator() const { return allocator_ ? &*allocator_ : nullptr; }
  // Called after every round.
  std::function<void()> on_round;

 private:
  using Clock = std::chrono::steady_clock;
  struct Registered {
    JoinMessage join;
    int64_t number = -1;  // in the order of names, once all have joined
    uint32_t taken_round = 0;
    uint64_t taken_base = 0;
  };
  Registered& known(const ClientName& who);
  Frame joined(const JoinMessage& m);
  Frame task_for(const ClientName& who);
  Frame update_of(UpdateMessage m);
  void take(Registered& from, const UpdateMessage& m);
  void offered(Registered& from, const UpdateMessage& m);
  Frame wished_of(Registered& from, const SumAttempt& of);
  void look_at_sum();
  void require_strategy(const Registered& from, const UpdateMessage& m) const;
  double add_sum();
  void begin();
  void begin_round();
  void close_round();
  void save() const;
  void restore(const std::filesystem::path& checkpoint);
  std::vector<ClientFacts> facts() const;
  std::vector<bool> hides_labels() const;  // by index

  run::Engine& engine_;
  const model::arch::Library& library_;
  FederateSettings settings_;
  std::filesystem::path folder_;
  Say say_;
  std::unique_ptr<apps::Network> network_;
  LocalSettings local_;
  uint64_t model_ = 0, base_ = 0;
  Weights global_;
  int64_t round_ = 0;
  std::map<std::string, Registered> registered_;  // by name
  std::vector<std::string> names_;                // by index
  std::optional<Allocator> allocator_;
  std::vector<int64_t> sampled_;
  std::map<int64_t, ClientAnswer> answers_;
  std::optional<SumRound> sum_;                // of this round, with secure sums
  std::map<int64_t, UpdateMessage> answered_;  // without its tensors
  std::map<std::string, bool> told_;
  Clock::time_point began_;
};

}  // namespace lumen::federate
