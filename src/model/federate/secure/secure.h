// Sums of which nobody sees the terms (after Bonawitz and others 2017, without its shares): each of a group of clients
// adds to its numbers, whole and modulo 2^32, what it has agreed on with every other (one adds it, one takes it away)
// and a mask of its own, which it tells once all have sent theirs. What is left of the sum is the sum of the numbers,
// bit for bit.
//
// Keys: X25519, of which both ends get the same 32 bytes; HKDF-SHA256 makes of them a key for each round, attempt and
// pair; ChaCha20 makes of that a mask. A client that goes before all have sent theirs leaves an attempt that nobody
// ends: it is made again without it, with other masks, and no mask of the one before is ever told. Of each update one
// attempt is told at most, so that no two sums of the same updates can be compared.
//
// Against: a server that does what it should and looks at what it gets, together with all but two of a group. Not
// against a server that makes up clients or hands out keys of its own: whoever it says is there is believed. Clients
// can say what is not so, and one that goes at the end costs the group its round.
//
// May include: base.
// Offers: sum.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lumen::model {

inline constexpr size_t kKeyBytes = 32, kLeastGroup = 3;
inline constexpr double kFixedUnit = 1 << 24;  // of numbers as whole ones
inline constexpr float kMostFixed = 64;        // no number is so large

using KeyBytes = std::array<uint8_t, kKeyBytes>;
KeyBytes drawn_bytes();  // of the system's own randomness

// An X25519 key, drawn.
class AgreementKey {
 public:
  AgreementKey();
  ~AgreementKey();
  AgreementKey(AgreementKey&& other) noexcept;
  const KeyBytes& open() const { return open_; }
  // What both ends get. Error where the other one is no key.
  KeyBytes agreed(const KeyBytes& other) const;

 private:
  struct Held;
  std::unique_ptr<Held> held_;
  KeyBytes open_{};
};

// HKDF-SHA256 of a secret, for what `purpose` says.
KeyBytes derived_key(const KeyBytes& secret, const std::string& purpose);
// Adds the key's mask to the words, or takes it away. Both modulo 2^32.
void add_mask(std::span<uint32_t> words, const KeyBytes& key, bool is_taken_away);

// x share 2^24, rounded, modulo 2^32; and back. Error (exit 4) for what is not finite or kMostFixed or more.
std::vector<uint32_t> fixed_words(std::span<const float> numbers, double share);
double fixed_number(uint32_t word);

// Who is in a group, as its server says.
struct GroupMember {
  std::string name;
  uint64_t examples = 0;
  KeyBytes key{};
  friend bool operator==(const GroupMember&, const GroupMember&) = default;
};
struct SumGroup {
  uint32_t round = 0;
  uint64_t base = 0;
  uint32_t attempt = 0;
  std::vector<GroupMember> members{};  // in the order of names
  friend bool operator==(const SumGroup&, const SumGroup&) = default;
};
// Error when it has fewer than kLeastGroup, names in disorder, nobody's examples, or a key twice.
void require_group(const SumGroup& group);

}  // namespace lumen::model
