// lumen federate join DATA --server HOST:PORT: a client of a federated run
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "apps/federate/verbs/verbs.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/net/net.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

constexpr double kFirstPause = 0.1, kLongestPause = 5;  // seconds between tries, twice as long each time
constexpr const char* kStateFile = "client.state";
constexpr uint64_t kLargestState = uint64_t{1} << 32;
constexpr uint32_t kStateMagic = 0x53464d4c;
constexpr size_t kMostTask = size_t{1} << 31;

struct JoinFlags {
  std::string data, server, name, state;
  double patience = 60, measure = 0.5, memory = 0, give_up = 600;
  bool hides = false;
};

void pause(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!interrupted() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

double peak_memory() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? 1024.0 * double(usage.ru_maxrss) : 0;
}

// What a client knows when it comes back: who it is, what rounding has left over, and the last update, which is sent
// again until the server has said what became of it.
struct ClientState {
  uint64_t key = 0;
  uint32_t round = 0;
  uint64_t base = 0;
  bool has_update = false, is_taken = false;
  bool is_told = false;               // its mask, where only sums are seen: no other may be told of this update
  std::string before, after, update;  // residuals (weights packed) without and with the update
};

void put_part(std::string& out, const std::string& part) {
  put_number(out, uint64_t(part.size()));
  out += part;
}

std::string pack_state(const ClientState& s) {
  std::string body;
  put_number(body, s.key);
  put_number(body, s.round);
  put_number(body, s.base);
  put_number(body, uint8_t((s.has_update ? 1 : 0) + (s.is_taken ? 2 : 0) + (s.is_told ? 4 : 0)));
  for (const std::string* part : {&s.before, &s.after, &s.update}) put_part(body, *part);
  std::string out;
  put_number(out, kStateMagic);
  put_number(out, hash_text(body).low);
  return out + body;
}

ClientState unpack_state(std::string_view bytes, const std::string& where) {
  constexpr size_t kHead = 12, kFixed = 21;
  const auto require = [&](bool holds) {
    if (!holds) throw Error(Exit::user, fmt::format("{} is no state of a client", where), "remove it to begin anew");
  };
  require(bytes.size() >= kHead + kFixed && get_number<uint32_t>(bytes, 0) == kStateMagic);
  const std::string_view body = bytes.substr(kHead);
  require(hash_text(body).low == get_number<uint64_t>(bytes, 4));
  ClientState s;
  s.key = get_number<uint64_t>(body, 0);
  s.round = get_number<uint32_t>(body, 8);
  s.base = get_number<uint64_t>(body, 12);
  s.has_update = (body[20] & 1) != 0;
  s.is_taken = (body[20] & 2) != 0;
  s.is_told = (body[20] & 4) != 0;
  size_t at = kFixed;
  for (std::string* part : {&s.before, &s.after, &s.update}) {
    require(body.size() - at >= 8);
    const uint64_t n = get_number<uint64_t>(body, at);
    at += 8;
    require(n <= body.size() - at);
    *part = body.substr(at, n);
    at += n;
  }
  require(at == body.size());
  return s;
}

// One client for as long as its process lives.
class FederateClient {
 public:
  FederateClient(const Shared& shared, const JoinFlags& flags)
      : flags_(flags), address_(parse_address(flags.server)), library_(shared.library()), engine_(shared.engine()) {
    file_ = std::filesystem::path(flags.state) / kStateFile;
    if (std::filesystem::exists(file_)) {
      state_ = unpack_state(read_file(file_, kLargestState), file_.string());
    } else {
      std::random_device random;
      state_.key = uint64_t{random()} << 32 | random();
      keep();
    }
    who_ = {flags.name, state_.key};
  }

  int run() {
    welcome();
    if (interrupted()) return exit_code(Exit::interrupted);
    Frame said = ask(federate::FederateKind::join, federate::pack_join(joining()));
    if (state_.has_update && !state_.is_taken) said = send_update();
    // What was masked is known to the process that died alone. It may have been taken all the same.
    if (settings_.is_secure && said.kind != uint16_t(federate::FederateKind::verdict) && !state_.is_told)
      state_.has_update = state_.has_update && state_.is_taken;
    while (!interrupted()) {
      switch (federate::FederateKind(said.kind)) {
        case federate::FederateKind::done:
          put(fmt::format("the run is over after {} rounds; {} of them with {}\n",
                          get_number<uint32_t>(checked(said.content, 4), 0), taken_, flags_.name));
          return 0;
        case federate::FederateKind::wait:
          pause(std::clamp(federate::unpack_wait(said.content).seconds, 0.02, kLongestPause));
          break;
        case federate::FederateKind::task:
          train(federate::unpack_task(said.content));
          if (interrupted()) continue;
          said = send_update();
          continue;
        case federate::FederateKind::group:
          said = masked(federate::unpack_group(said.content));
          continue;
        case federate::FederateKind::tell:
          said = told(federate::unpack_tell(said.content));
          continue;
        case federate::FederateKind::verdict:
          heard(!checked(said.content, 1).empty() && said.content[0] == 1);
          break;
        default:
          throw no_message("the server says what it never says");
      }
      if (interrupted()) break;
      const bool is_open = settings_.is_secure && state_.has_update && !state_.is_taken;
      said = is_open ? send_update() : ask(federate::FederateKind::ask, federate::pack_speaker(who_));
    }
    note("interrupted; the same command joins again");
    return exit_code(Exit::interrupted);
  }

 private:
  static const std::string& checked(const std::string& content, size_t bytes) {
    if (content.size() != bytes) throw no_message(fmt::format("{} bytes, not {}", content.size(), bytes));
    return content;
  }

  void keep() const { write_file_atomic(file_, pack_state(state_)); }

  // Again and again, with longer pauses, while nobody answers. What the server refuses is no reason to ask again.
  Frame ask(federate::FederateKind kind, const std::string& content) {
    double wait = kFirstPause;
    const Stopwatch watch;
    while (true) {
      try {
        Answered answered = ask_frame(address_, federate::kFederate, federate::frame_of(kind, content), flags_.patience,
                                      kMostTask, {"server", "`lumen federate serve` is one"});
        if (answered.bytes_in > 1 << 14 && answered.seconds > 0) link_ = answered.bytes_in / answered.seconds;
        return std::move(answered.frame);
      } catch (const PeerRefused&) {
        throw;
      } catch (const Error& e) {
        const std::string why = e.what();
        const double since = watch.seconds();
        if (interrupted() || since > flags_.give_up) throw;
        note(fmt::format("{}; again in {:.1f} s", why, wait));
        pause(wait);
        wait = std::min(2 * wait, kLongestPause);
        if (interrupted()) throw;
      }
    }
  }

  void welcome() {
    const Frame said = ask(federate::FederateKind::hello, federate::pack_speaker(who_));
    if (said.kind != uint16_t(federate::FederateKind::welcome) || said.content.size() > federate::kMostWelcome)
      throw no_message("no welcome");
    settings_ = federate::parse_federate_settings(said.content, "the server's welcome");
    data_ = read_examples(flags_.data, "train", settings_, *library_);
    network_ = std::make_unique<apps::Network>(engine_, *library_, settings_.network);
    trainer_ = std::make_unique<federate::LocalTrainer>(engine_, *network_,
                                                        federate::local_settings(settings_, library_->formats()));
    note(fmt::format("{}: {} examples; {}, {} rounds", flags_.name, data_.count(), settings_.network.family,
                     settings_.rounds));
  }

  federate::JoinMessage joining() {
    federate::JoinMessage m{.who = who_, .model = federate::model_hash(settings_, *library_)};
    m.examples = uint64_t(data_.count());
    if (!flags_.hides) m.counts = federate::histogram(data_.shown, data_.classes);
    const federate::Weights begin = federate::weights_of(*network_);
    for (const auto s :
         {federate::ClientStrategy::whole, federate::ClientStrategy::after, federate::ClientStrategy::aware}) {
      const bool is_asked = s == federate::ClientStrategy::whole || !settings_.weights.empty();
      m.rate[size_t(s)] = is_asked ? trainer_->rate(begin, data_, s, flags_.measure) : m.rate[0];
      m.memory[size_t(s)] = peak_memory();
    }
    m.memory_there = flags_.memory;
    m.link = link_;
    put(fmt::format("{} measured {:.0f} / {:.0f} / {:.0f} examples a second in float, P, Q\n", flags_.name, m.rate[0],
                    m.rate[1], m.rate[2]));
    return m;
  }

  void train(const federate::TaskMessage& task) {
    if (state_.has_update && state_.round == task.round && state_.base == task.base) return;  // it is there already
    // Residuals of an update that was not taken are as if it had never been.
    if (state_.has_update && state_.is_taken) state_.before = state_.after;
    federate::Weights residual;
    if (!state_.before.empty()) residual = federate::unpack_weights(state_.before);
    std::vector<int64_t> all(size_t(data_.count()));
    for (size_t i = 0; i < all.size(); ++i) all[i] = int64_t(i);
    const uint64_t seed = hash_text(fmt::format("{} {} {}", settings_.seed, task.round, flags_.name)).low;
    const federate::LocalResult local = trainer_->train(task.weights, data_, all, task.strategy, seed);
    const FormatRef format =
        task.strategy == federate::ClientStrategy::whole ? nullptr : trainer_->settings().formats.upload;
    const double link = link_;
    federate::UpdateMessage update{.who = who_, .round = task.round, .base = task.base, .strategy = task.strategy};
    update.examples = uint64_t(data_.count());
    update.first_loss = local.first_loss;
    update.last_loss = local.last_loss;
    update.off = local.off;
    update.set_up = local.set_up;
    update.seconds = local.seconds;
    update.link = link;
    update.change = federate::encoded_change(engine_, *network_, format, task.weights, local.weights,
                                             settings_.feedback ? &residual : nullptr);
    if (settings_.is_secure) hide(update, format);
    state_.round = task.round;
    state_.base = task.base;
    state_.has_update = true;
    state_.is_taken = state_.is_told = false;
    state_.after = federate::pack_weights(residual);
    state_.update = federate::pack_update(update);
    keep();
    put(fmt::format("round {} | {} | {} steps in {:.2f} s | loss {:.4f} -> {:.4f} | {} bytes\n", task.round + 1,
                    federate::strategy_name(task.strategy), local.steps, local.seconds, local.first_loss,
                    local.last_loss, update.change.bytes()));
    finish_output();
  }

  // The update stays here; what is sent is a key, with which it can be masked.
  void hide(federate::UpdateMessage& update, const FormatRef& format) {
    partner_.emplace(flags_.name);
    numbers_ =
        federate::numbers_of(federate::decoded_change(engine_, *network_, format, update.change), update.last_loss);
    update.change = federate::key_instead(partner_->key());
    update.first_loss = update.last_loss = 0;
  }

  // Nothing while there is nothing to say: who has told a mask says nothing more of this update.
  Frame masked(const federate::SumGroup& group) {
    if (state_.is_told || !partner_) {
      pause(kFirstPause);
      return send_update();
    }
    require_own(group.round, group.base);
    const std::vector<uint32_t> words = partner_->masked(group, numbers_);
    return ask(federate::FederateKind::masked,
               federate::pack_masked({who_, {group.round, group.base, group.attempt}, words}));
  }

  Frame told(const federate::SumAttempt& of) {
    require_own(of.round, of.base);
    if (!partner_) throw user_error("the server requests a mask that does not exist");
    const federate::KeyBytes seed = partner_->told(of.attempt);
    state_.is_told = true;
    keep();
    return ask(federate::FederateKind::seed, federate::pack_seed({who_, of, seed}));
  }

  void require_own(uint32_t round, uint64_t base) const {
    if (!state_.has_update || round != state_.round || base != state_.base)
      throw user_error("the server requests an update that was not announced");
  }

  Frame send_update() { return ask(federate::FederateKind::update, state_.update); }

  void heard(bool is_taken) {
    if (is_taken) {
      ++taken_;
      state_.is_taken = true;
    } else {
      state_.has_update = false;
      note(fmt::format("round {} ended without {}", state_.round + 1, flags_.name));
    }
    keep();
  }

  const JoinFlags& flags_;
  Address address_;
  model::arch::LibraryRef library_;
  run::Engine engine_;
  std::filesystem::path file_;
  ClientState state_;
  federate::ClientName who_;
  federate::FederateSettings settings_;
  federate::Examples data_;
  std::unique_ptr<apps::Network> network_;
  std::unique_ptr<federate::LocalTrainer> trainer_;
  std::optional<federate::SumPartner> partner_;  // of the update, where only sums are seen
  std::vector<float> numbers_;                   // that it hides
  double link_ = 0;
  int64_t taken_ = 0;
};

int federate_join(const Shared& shared, JoinFlags flags) {
  if (flags.name.empty()) flags.name = std::filesystem::path(flags.data).filename().string();
  federate::require_client_name(flags.name);
  if (flags.state.empty()) flags.state = (std::filesystem::path(flags.data) / "federate").string();
  require_writable_folder(flags.state);
  const FolderLock lock(flags.state);
  catch_interrupts();
  const SavesWhenStopped state;
  return FederateClient(shared, flags).run();
}

}  // namespace

void add_federate_join(CLI::App& app, Command& command) {
  auto flags = std::make_shared<JoinFlags>();
  CLI::App* sub = app.add_subcommand("join", "Run a client: train on local data");
  add_settings(*sub, "data", flags->data, "--server", flags->server, "--name", flags->name, "--state", flags->state,
               "--patience", flags->patience, "--give-up", flags->give_up, "--measure", flags->measure, "--memory",
               flags->memory, "--hide-labels", flags->hides);
  set_action(*sub, command, flags, federate_join);
}

}  // namespace lumen::cli
