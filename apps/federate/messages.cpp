#include "apps/federate/messages.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"

namespace lumen::federate {
namespace {

void put_real(std::string& out, double value) {
  put_number(out, std::bit_cast<uint64_t>(value));
}
void put_text(std::string& out, std::string_view text) {
  put_number(out, uint16_t(text.size()));
  out += text;
}
void put_who(std::string& out, const ClientName& who) {
  put_text(out, who.name);
  put_number(out, who.key);
}
template <class Bytes>
void put_tensor(std::string& out, const std::string& name, const Bytes& numbers) {
  put_text(out, name);
  const auto bytes = std::as_bytes(std::span(numbers));
  put_number(out, uint32_t(bytes.size()));
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void put_attempt(std::string& out, const SumAttempt& of) {
  put_number(out, of.round);
  put_number(out, of.base);
  put_number(out, of.attempt);
}
void put_key(std::string& out, const KeyBytes& key) {
  for (const uint8_t b : key) put_number(out, b);
}

// Reads a content from the front; every read first checks the remaining size.
class ContentReader {
 public:
  explicit ContentReader(std::string_view content) : left_(content) {}

  template <class T>
  T number() {
    return get_number<T>(some(sizeof(T)), 0);
  }
  double real() { return std::bit_cast<double>(number<uint64_t>()); }
  // Finite and >= 0.
  double amount(const char* what) {
    const double value = real();
    if (!std::isfinite(value) || value < 0) throw no_message(fmt::format("{} is {}", what, value));
    return value;
  }
  double finite(const char* what) {
    const double value = real();
    if (!std::isfinite(value)) throw no_message(fmt::format("{} is {}", what, value));
    return value;
  }
  std::string text(size_t most) {
    const size_t n = number<uint16_t>();
    if (n > most) throw no_message(fmt::format("a string of {} bytes, and {} are the most", n, most));
    return std::string(some(n));
  }
  ClientName who() {
    ClientName out{text(kMostName), number<uint64_t>()};
    require_client_name(out.name);
    return out;
  }
  ClientStrategy strategy() {
    const auto s = number<uint8_t>();
    if (s >= kStrategies) throw no_message(fmt::format("strategy {}", s));
    return ClientStrategy(s);
  }
  size_t count(size_t most, const char* what) {
    const size_t n = number<uint32_t>();
    if (n > most) throw no_message(fmt::format("{} {}, and {} are the most", n, what, most));
    return n;
  }
  SumAttempt attempt() {
    SumAttempt out{.round = number<uint32_t>()};
    out.base = number<uint64_t>();
    out.attempt = number<uint32_t>();
    return out;
  }
  KeyBytes key() {
    KeyBytes out;
    const std::string_view bytes = some(out.size());
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return out;
  }
  std::string_view bytes() { return some(number<uint32_t>()); }
  void end() const {
    if (!left_.empty()) throw no_message(fmt::format("{} bytes after its end", left_.size()));
  }

 private:
  std::string_view some(size_t n) {
    if (n > left_.size()) throw no_message(fmt::format("{} bytes where {} must be", left_.size(), n));
    const std::string_view out = left_.substr(0, n);
    left_.remove_prefix(n);
    return out;
  }
  std::string_view left_;
};

Weights take_weights(ContentReader& in) {
  Weights out;
  const size_t tensors = in.count(kMostTensors, "tensors");
  std::string last;
  for (size_t i = 0; i < tensors; ++i) {
    const std::string name = in.text(kMostReason);
    const std::string_view bytes = in.bytes();
    if (bytes.size() % sizeof(float) != 0) throw no_message(fmt::format("{} bytes of floats", bytes.size()));
    if (i > 0 && name <= last) throw no_message("tensors in disorder");
    last = name;
    std::vector<float>& numbers = out[name];
    numbers.resize(bytes.size() / sizeof(float));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(numbers.data()));
    if (!std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); }))
      throw no_message("a weight that is not finite");
  }
  return out;
}

}  // namespace

void require_client_name(const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  if (name.empty() || name.size() > kMostName || !std::all_of(name.begin(), name.end(), fits))
    throw user_error("a client's name has 1 to {} letters, digits, dots, lines", kMostName);
}

std::string pack_speaker(const ClientName& who) {
  std::string out;
  put_who(out, who);
  return out;
}

ClientName unpack_speaker(std::string_view content) {
  ContentReader in(content);
  ClientName out = in.who();
  in.end();
  return out;
}

std::string pack_join(const JoinMessage& m) {
  std::string out;
  put_who(out, m.who);
  put_number(out, m.model);
  put_number(out, m.examples);
  put_number(out, uint32_t(m.counts.size()));
  for (const double n : m.counts) put_real(out, n);
  for (int s = 0; s < kStrategies; ++s)
    for (const auto* of : {&m.rate, &m.set_up, &m.memory}) put_real(out, of->at(s));
  put_real(out, m.memory_there);
  put_real(out, m.link);
  return out;
}

JoinMessage unpack_join(std::string_view content) {
  ContentReader in(content);
  JoinMessage out{.who = in.who()};
  out.model = in.number<uint64_t>();
  out.examples = in.number<uint64_t>();
  if (out.examples < 1 || out.examples > uint64_t{1} << 40) throw no_message(fmt::format("{} examples", out.examples));
  const size_t classes = in.count(kMostClasses, "classes");
  for (size_t k = 0; k < classes; ++k) out.counts.push_back(in.amount("a count"));
  for (int s = 0; s < kStrategies; ++s)
    for (auto* of : {&out.rate, &out.set_up, &out.memory}) of->at(s) = in.amount("a measurement");
  out.memory_there = in.amount("the memory");
  out.link = in.amount("the link");
  in.end();
  return out;
}

std::string pack_weights(const Weights& weights) {
  std::string out;
  put_number(out, uint32_t(weights.size()));
  for (const auto& [name, numbers] : weights) put_tensor(out, name, numbers);
  return out;
}

Weights unpack_weights(std::string_view content) {
  ContentReader in(content);
  Weights out = take_weights(in);
  in.end();
  return out;
}

std::string pack_task(const TaskMessage& m) {
  std::string out;
  put_number(out, m.round);
  put_number(out, m.base);
  put_number(out, uint8_t(m.strategy));
  put_real(out, m.seconds);
  return out + pack_weights(m.weights);
}

TaskMessage unpack_task(std::string_view content) {
  ContentReader in(content);
  TaskMessage out{.round = in.number<uint32_t>()};
  out.base = in.number<uint64_t>();
  out.strategy = in.strategy();
  out.seconds = in.amount("the time");
  out.weights = take_weights(in);
  in.end();
  return out;
}

std::string pack_wait(const WaitMessage& m) {
  std::string out;
  put_real(out, m.seconds);
  put_text(out, m.why);
  return out;
}

WaitMessage unpack_wait(std::string_view content) {
  ContentReader in(content);
  WaitMessage out{in.amount("the time"), in.text(kMostReason)};
  in.end();
  return out;
}

std::string pack_update(const UpdateMessage& m) {
  std::string out;
  put_who(out, m.who);
  put_number(out, m.round);
  put_number(out, m.base);
  put_number(out, uint8_t(m.strategy));
  put_number(out, m.examples);
  for (const double value : {m.first_loss, m.last_loss, m.off, m.set_up, m.seconds, m.link}) put_real(out, value);
  put_number(out, uint32_t(m.change.tensors.size()));
  for (const auto& [name, bytes] : m.change.tensors) put_tensor(out, name, bytes);
  return out;
}

UpdateMessage unpack_update(std::string_view content) {
  ContentReader in(content);
  UpdateMessage out{.who = in.who()};
  out.round = in.number<uint32_t>();
  out.base = in.number<uint64_t>();
  out.strategy = in.strategy();
  out.examples = in.number<uint64_t>();
  for (double* value : {&out.first_loss, &out.last_loss}) *value = in.finite("a loss");
  for (double* value : {&out.off, &out.set_up, &out.seconds, &out.link}) *value = in.amount("a measurement");
  const size_t tensors = in.count(kMostTensors, "tensors");
  for (size_t i = 0; i < tensors; ++i) {
    std::string name = in.text(kMostReason);
    const std::string_view bytes = in.bytes();
    out.change.tensors.emplace_back(std::move(name), std::vector<uint8_t>(bytes.begin(), bytes.end()));
  }
  in.end();
  return out;
}

std::string pack_group(const SumGroup& m) {
  std::string out;
  put_attempt(out, {m.round, m.base, m.attempt});
  put_number(out, uint32_t(m.members.size()));
  for (const GroupMember& member : m.members) {
    put_text(out, member.name);
    put_number(out, member.examples);
    put_key(out, member.key);
  }
  return out;
}

SumGroup unpack_group(std::string_view content) {
  ContentReader in(content);
  const SumAttempt of = in.attempt();
  SumGroup out{of.round, of.base, of.attempt, {}};
  const size_t members = in.count(kMostMembers, "members");
  for (size_t i = 0; i < members; ++i) {
    GroupMember m{.name = in.text(kMostName)};
    require_client_name(m.name);
    m.examples = in.number<uint64_t>();
    m.key = in.key();
    out.members.push_back(std::move(m));
  }
  in.end();
  return out;
}

std::string pack_masked(const MaskedMessage& m) {
  std::string out;
  put_who(out, m.who);
  put_attempt(out, m.of);
  put_number(out, uint32_t(4 * m.words.size()));
  for (const uint32_t word : m.words) put_number(out, word);
  return out;
}

MaskedMessage unpack_masked(std::string_view content) {
  ContentReader in(content);
  MaskedMessage out{.who = in.who()};
  out.of = in.attempt();
  const std::string_view bytes = in.bytes();
  if (bytes.size() % 4 != 0) throw no_message(fmt::format("{} bytes of words", bytes.size()));
  out.words.reserve(bytes.size() / 4);
  for (size_t at = 0; at < bytes.size(); at += 4) out.words.push_back(get_number<uint32_t>(bytes, at));
  in.end();
  return out;
}

std::string pack_tell(const SumAttempt& m) {
  std::string out;
  put_attempt(out, m);
  return out;
}

SumAttempt unpack_tell(std::string_view content) {
  ContentReader in(content);
  const SumAttempt out = in.attempt();
  in.end();
  return out;
}

std::string pack_seed(const SeedMessage& m) {
  std::string out;
  put_who(out, m.who);
  put_attempt(out, m.of);
  put_key(out, m.seed);
  return out;
}

SeedMessage unpack_seed(std::string_view content) {
  ContentReader in(content);
  SeedMessage out{.who = in.who()};
  out.of = in.attempt();
  out.seed = in.key();
  in.end();
  return out;
}

uint64_t hash_of(const Weights& weights) {
  return hash_text(pack_weights(weights)).low;
}

}  // namespace lumen::federate
