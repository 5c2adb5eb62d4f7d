// Secure aggregation: sums whose terms stay secret (after Bonawitz and others 2017, without its secret sharing). Each
// client of a group masks its numbers, integers modulo 2^32, with a pairwise mask for every other client (one adds it,
// the other subtracts it) and with a mask of its own, which it reveals once all have sent their masked numbers. Then
// the sum is that of the numbers, bit for bit.
//
// Keys: X25519, with which both ends derive the same 32 bytes; HKDF-SHA256 derives from them a key for each round,
// attempt and pair; ChaCha20 expands that to a mask. When a client disappears before all have sent theirs, the attempt
// is abandoned: it is repeated without that client, with other masks, and no mask of the earlier attempt is ever
// revealed. At most one attempt per update is revealed, so no two sums of the same updates can be compared.
//
// Protects against a server that follows the protocol but inspects what it receives, colluding with all but two of a
// group. Not against a server that invents clients or substitutes keys: its list of members is trusted. Clients can
// send false numbers, and one that disappears at the end costs the group its round.
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

namespace lumen::federate {

inline constexpr size_t kKeyBytes = 32, kLeastGroup = 3;
inline constexpr double kFixedUnit = 1 << 24;  // scale of fixed-point numbers
inline constexpr float kMostFixed = 64;        // bound of a number's magnitude

using KeyBytes = std::array<uint8_t, kKeyBytes>;
KeyBytes drawn_bytes();  // from the system's random generator

// A random X25519 key.
class AgreementKey {
 public:
  AgreementKey();
  ~AgreementKey();
  AgreementKey(AgreementKey&& other) noexcept;
  const KeyBytes& open() const { return open_; }
  // The shared secret of both ends. Error where the other key is invalid.
  KeyBytes agreed(const KeyBytes& other) const;

 private:
  struct Held;
  std::unique_ptr<Held> held_;
  KeyBytes open_{};
};

// HKDF-SHA256 of a secret, with `purpose` as info.
KeyBytes derived_key(const KeyBytes& secret, const std::string& purpose);
// Adds the key's mask to the words, or subtracts it. Both modulo 2^32.
void add_mask(std::span<uint32_t> words, const KeyBytes& key, bool is_taken_away);

// x share 2^24, rounded, modulo 2^32; and back. Error (exit 4) for numbers that are not finite, or kMostFixed or more.
std::vector<uint32_t> fixed_words(std::span<const float> numbers, double share);
double fixed_number(uint32_t word);

// A member of a group, as the server lists it.
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
// Error when it has fewer than kLeastGroup members, names out of order, no examples, or a duplicate key.
void require_group(const SumGroup& group);

}  // namespace lumen::federate
